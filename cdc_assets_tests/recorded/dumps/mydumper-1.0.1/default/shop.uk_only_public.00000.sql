/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40101 SET SQL_MODE='NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION'*/;
/*!40103 SET TIME_ZONE='+00:00' */;
INSERT INTO `uk_only_public` VALUES(1,_binary "emoji 🚀 x=1&y<2>z",_binary "b",18446744073709551615)
,(12,NULL,_binary "b",18446744073709551615)
,(1,NULL,_binary "d\'e",19)
,(0,_binary "a,b;c|d",_binary "Ç",NULL)
,(1,_binary "quo\"te tab	here Straße",_binary "Ç",9223372036854775808)
;
