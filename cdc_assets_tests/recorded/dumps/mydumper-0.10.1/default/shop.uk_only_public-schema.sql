/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;

/*!40103 SET TIME_ZONE='+00:00' */;
CREATE TABLE `uk_only_public` (
  `region` int(11) NOT NULL,
  `v` varchar(30) DEFAULT NULL,
  `code` varchar(16) NOT NULL,
  `n` bigint(20) unsigned DEFAULT NULL,
  UNIQUE KEY `uk` (`code`,`region`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
