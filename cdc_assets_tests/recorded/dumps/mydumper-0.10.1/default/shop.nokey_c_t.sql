/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40103 SET TIME_ZONE='+00:00' */;
INSERT INTO `nokey_c_t` VALUES
(NULL,NULL,"\0ÿ"),
(NULL,"x",NULL),
(NULL,"dup",NULL),
(NULL,"dup","\0ÿ"),
(NULL,"dup","\0ÿ"),
(1,"x",NULL),
(2,"x","\0ÿ"),
(NULL,"x",NULL),
(NULL,"x","\0ÿ"),
(NULL,"dup","\0ÿ"),
(1,"x","\0ÿ"),
(1,"dup",NULL),
(1,"dup",NULL);
