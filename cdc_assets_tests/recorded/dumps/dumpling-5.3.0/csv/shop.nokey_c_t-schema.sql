/*!40101 SET NAMES binary*/;
CREATE TABLE `nokey_c_t` (
  `a` int(11) DEFAULT NULL,
  `b` varchar(20) DEFAULT NULL,
  `c` varbinary(8) DEFAULT NULL,
  KEY `k` (`a`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
