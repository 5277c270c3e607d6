/*!40101 SET NAMES binary*/;
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
