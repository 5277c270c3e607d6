/*!40101 SET NAMES binary*/;
/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40101 SET SQL_MODE='NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION'*/;
/*!40103 SET TIME_ZONE='+00:00' */;
CREATE TABLE `orders` (
  `region` varchar(16) NOT NULL,
  `order_id` bigint(20) NOT NULL,
  `customer` varchar(64) DEFAULT NULL,
  `qty` int(10) unsigned NOT NULL,
  `amount` decimal(12,2) DEFAULT NULL,
  `status` enum('new','paid','shipped','cancelled') NOT NULL,
  `note` text DEFAULT NULL,
  `updated_at` datetime(3) NOT NULL,
  PRIMARY KEY (`region`,`order_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
