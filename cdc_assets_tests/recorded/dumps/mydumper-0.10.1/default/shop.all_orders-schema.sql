/*!40101 SET NAMES binary*/;
CREATE TABLE `all_orders`(
`region` int,
`order_id` int,
`customer` int,
`qty` int,
`amount` int,
`status` int,
`note` int,
`updated_at` int
)ENGINE=MyISAM;
