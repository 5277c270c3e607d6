/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40103 SET TIME_ZONE='+00:00' */;
INSERT INTO `pk_and_uk` (`id`,`email`,`nick`,`v`) VALUES
(1,"u1@public.example",NULL,NULL),
(2,"u2@public.example","n3",1005),
(3,"u3@public.example","nick3",13),
(4,"u4@public.example","nick4",1001),
(5,"u5@public.example","nick5",-23),
(6,"u6@public.example","nick6",NULL);
