/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40101 SET SQL_MODE='NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION'*/;
/*!40103 SET TIME_ZONE='+00:00' */;
INSERT INTO `pk_and_uk` (`id`,`email`,`nick`,`v`) VALUES(1,_binary "u1@public.example",NULL,NULL)
,(2,_binary "u2@public.example",_binary "n3",1005)
,(3,_binary "u3@public.example",_binary "nick3",13)
,(4,_binary "u4@public.example",_binary "nick4",1001)
,(5,_binary "u5@public.example",_binary "nick5",-23)
,(6,_binary "u6@public.example",_binary "nick6",NULL)
;
