/*!40101 SET NAMES binary*/;
CREATE TABLE `pk_and_uk` (
  `id` int(11) NOT NULL,
  `email` varchar(40) NOT NULL,
  `nick` varchar(20) DEFAULT NULL,
  `v` int(11) DEFAULT NULL,
  `g_stored` bigint(20) GENERATED ALWAYS AS (`v` * 2) STORED,
  `g_virtual` bigint(20) GENERATED ALWAYS AS (`v` + 1) VIRTUAL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ue` (`email`),
  UNIQUE KEY `un` (`nick`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
