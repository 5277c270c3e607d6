/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40101 SET SQL_MODE='NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION'*/;
/*!40103 SET TIME_ZONE='+00:00' */;
INSERT INTO `nokey_c_t` VALUES(NULL,NULL,_binary "\0ÿ")
,(NULL,_binary "x",NULL)
,(NULL,_binary "dup",NULL)
,(NULL,_binary "dup",_binary "\0ÿ")
,(NULL,_binary "dup",_binary "\0ÿ")
,(1,_binary "x",NULL)
,(2,_binary "x",_binary "\0ÿ")
,(NULL,_binary "x",NULL)
,(NULL,_binary "x",_binary "\0ÿ")
,(NULL,_binary "dup",_binary "\0ÿ")
,(1,_binary "x",_binary "\0ÿ")
,(1,_binary "dup",NULL)
,(1,_binary "dup",NULL)
;
