/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40101 SET SQL_MODE='NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION'*/;
/*!40103 SET TIME_ZONE='+00:00' */;
INSERT INTO `orders` VALUES(_binary "br",9007199254740991,_binary "emoji 🚀",0,-38522.05,_binary "shipped",NULL,_binary "2026-12-26 20:32:24.973")
,(_binary "br",9007199254740992,_binary "é combining",1000000000,NULL,_binary "shipped","",_binary "2026-07-15 03:28:09.342")
,(_binary "br",9007199254740995,_binary "Straße",0,-4017876.66,_binary "new",_binary "quo\"te",_binary "2026-08-26 03:01:44.362")
,(_binary "br",9007199254740996,_binary "cust 35",1000000000,-3.95,_binary "new",NULL,_binary "2026-11-16 13:17:58.090")
,(_binary "br",9007199254740998,NULL,0,NULL,_binary "shipped",_binary "Straße naïve café",_binary "2026-03-08 08:14:59.664")
,(_binary "eu",9007199254740990,NULL,0,NULL,_binary "new",_binary "рубль it\'s it\'s",_binary "2026-04-05 12:42:19.489")
,(_binary "eu",9007199254740994,_binary "it\'s",2000000000,NULL,_binary "new",NULL,_binary "2026-09-06 07:55:11.641")
,(_binary "eu",9007199254740996,_binary "cust 3",2000000000,NULL,_binary "shipped","",_binary "2026-08-17 23:58:46.845")
,(_binary "jp",9007199254740992,NULL,1000000000,2000764804.90,_binary "shipped",_binary "Straße a,b;c|d Straße",_binary "2026-01-21 05:02:04.699")
,(_binary "jp",9007199254740993,_binary "a,b;c|d",2000000000,NULL,_binary "shipped",_binary "emoji 🚀 emoji 🚀",_binary "2026-12-20 07:36:32.417")
,(_binary "jp",9007199254740994,_binary "back\\slash",1000000000,-1457.00,_binary "paid","",_binary "2026-05-07 07:03:59.688")
,(_binary "jp",9007199254740996,_binary "emoji 🚀",4000000000,NULL,_binary "paid",_binary "テスト値",_binary "2026-08-26 21:52:40.707")
,(_binary "jp",9007199254740998,_binary "quo\"te",0,79391625.36,_binary "shipped",_binary "line\nbreak рубль",_binary "2026-06-04 18:11:00.433")
,(_binary "us",9007199254740990,NULL,1000000000,NULL,_binary "cancelled",NULL,_binary "2026-05-26 14:36:49.281")
,(_binary "us",9007199254740992,_binary "it\'s",1000000000,NULL,_binary "new",NULL,_binary "2026-06-28 14:32:48.612")
,(_binary "us",9007199254740993,_binary "cust 41",4000000000,NULL,_binary "shipped",NULL,_binary "2026-02-25 15:57:44.674")
,(_binary "us",9007199254740994,NULL,1000000000,2937.22,_binary "paid",NULL,_binary "2026-07-05 03:44:42.089")
,(_binary "us",9007199254740996,NULL,4000000000,NULL,_binary "paid",NULL,_binary "2026-11-06 01:30:43.820")
,(_binary "us",9007199254740997,_binary "cust 29",2000000000,-27.22,_binary "paid","",_binary "2026-01-05 19:15:00.895")
,(_binary "us",9007199254740998,_binary "рубль",1000000000,NULL,_binary "new","",_binary "2026-10-24 08:12:46.658")
,(_binary "大阪",9007199254740994,_binary "naïve café",0,-422068946.95,_binary "shipped",NULL,_binary "2026-02-26 03:42:18.249")
,(_binary "大阪",9007199254740997,_binary "cust 34",4000000000,-849727893.97,_binary "shipped",NULL,_binary "2026-06-26 12:18:39.844")
;
