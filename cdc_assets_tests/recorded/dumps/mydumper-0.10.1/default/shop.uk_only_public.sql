/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40103 SET TIME_ZONE='+00:00' */;
INSERT INTO `uk_only_public` VALUES
(1,"emoji 🚀 x=1&y<2>z","b",18446744073709551615),
(12,NULL,"b",18446744073709551615),
(1,NULL,"d\'e",19),
(0,"a,b;c|d","Ç",NULL),
(1,"quo\"te tab	here Straße","Ç",9223372036854775808);
