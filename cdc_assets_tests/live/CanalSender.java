import com.alibaba.druid.pool.DruidDataSource;
import com.alibaba.otter.canal.common.alarm.LogAlarmHandler;
import com.alibaba.otter.canal.connector.core.spi.ProxyCanalMQProducer;
import com.alibaba.otter.canal.connector.kafka.producer.CanalKafkaProducer;
import com.alibaba.otter.canal.filter.aviater.AviaterRegexFilter;
import com.alibaba.otter.canal.instance.core.CanalInstance;
import com.alibaba.otter.canal.instance.core.CanalMQConfig;
import com.alibaba.otter.canal.instance.spring.CanalInstanceWithSpring;
import com.alibaba.otter.canal.meta.FileMixedMetaManager;
import com.alibaba.otter.canal.parse.ha.HeartBeatHAController;
import com.alibaba.otter.canal.parse.inbound.mysql.MysqlEventParser;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.DatabaseTableMeta;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.TableMetaTSDB;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.TableMetaTSDBFactory;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.MetaHistoryDAO;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.MetaHistoryDO;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.MetaSnapshotDAO;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.MetaSnapshotDO;
import com.alibaba.otter.canal.parse.index.FailbackLogPositionManager;
import com.alibaba.otter.canal.parse.index.MemoryLogPositionManager;
import com.alibaba.otter.canal.parse.index.MetaLogPositionManager;
import com.alibaba.otter.canal.parse.support.AuthenticationInfo;
import com.alibaba.otter.canal.protocol.position.EntryPosition;
import com.alibaba.otter.canal.server.CanalMQStarter;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.alibaba.otter.canal.sink.entry.EntryEventSink;
import com.alibaba.otter.canal.store.memory.MemoryEventStoreWithBuffer;
import com.alibaba.otter.canal.store.model.BatchMode;
import java.io.ByteArrayInputStream;
import java.io.FileReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import javax.sql.DataSource;
import org.apache.ibatis.builder.xml.XMLMapperBuilder;
import org.apache.ibatis.mapping.Environment;
import org.apache.ibatis.session.Configuration;
import org.apache.ibatis.session.SqlSessionFactory;
import org.apache.ibatis.session.defaults.DefaultSqlSessionFactory;
import org.mybatis.spring.transaction.SpringManagedTransactionFactory;

/**
 * Runs one instance of Canal that sends flat messages to Kafka, as canal.deployer 1.1.7 does with file-instance.xml.
 *
 * usage: java -cp JARS CanalSender.java PROPERTIES
 *
 * Maven Central has all modules of Canal 1.1.7 but the deployer, which only wires them. The properties are the deployer's
 * (canal.mq.*, kafka.*, canal.instance.*), as far as they are read here.
 */
public final class CanalSender {
    private static final String DESTINATION = "live";
    private static final String MAPPERS = "com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.";

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileReader file = new FileReader(arguments[0], StandardCharsets.UTF_8)) {
            settings.load(file);
        }
        CanalKafkaProducer producer = new CanalKafkaProducer();
        producer.init(settings);
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(name -> instance(settings));
        server.start();
        server.start(DESTINATION);
        new CanalMQStarter(new ProxyCanalMQProducer(producer)).start(DESTINATION);
        Thread.currentThread().join();
    }

    private static CanalInstance instance(Properties settings) {
        FileMixedMetaManager positions = new FileMixedMetaManager();
        positions.setDataDir(settings.getProperty("canal.file.data.dir"));
        positions.setPeriod(Long.parseLong(settings.getProperty("canal.file.flush.period")));

        MemoryEventStoreWithBuffer store = new MemoryEventStoreWithBuffer();
        store.setBufferSize(16384);
        store.setBatchMode(BatchMode.MEMSIZE);
        store.setRaw(false);  // as the deployer sets it for flat messages

        EntryEventSink sink = new EntryEventSink();
        sink.setEventStore(store);

        CanalMQConfig target = new CanalMQConfig();
        target.setTopic(settings.getProperty("canal.mq.topic"));
        target.setPartition(0);

        CanalInstanceWithSpring made = new CanalInstanceWithSpring();
        made.setDestination(DESTINATION);
        made.setAlarmHandler(new LogAlarmHandler());
        made.setMetaManager(positions);
        made.setEventStore(store);
        made.setEventSink(sink);
        made.setEventParser(parser(settings, positions, sink));
        made.setMqConfig(target);
        return made;
    }

    private static MysqlEventParser parser(Properties settings, FileMixedMetaManager positions, EntryEventSink sink) {
        HeartBeatHAController controller = new HeartBeatHAController();
        controller.setDetectingRetryTimes(3);
        controller.setSwitchEnable(false);

        AuthenticationInfo login = new AuthenticationInfo();
        login.setAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(settings.getProperty("port"))));
        login.setUsername(settings.getProperty("canal.instance.dbUsername"));
        login.setPassword(settings.getProperty("canal.instance.dbPassword"));
        login.setDefaultDatabaseName("");

        EntryPosition begin = new EntryPosition();
        begin.setJournalName(settings.getProperty("canal.instance.master.journal.name"));
        begin.setPosition(Long.parseLong(settings.getProperty("canal.instance.master.position")));
        begin.setTimestamp(Long.parseLong(settings.getProperty("canal.instance.master.timestamp")));

        MysqlEventParser parser = new MysqlEventParser();
        parser.setDestination(DESTINATION);
        parser.setSlaveId(778);
        parser.setDetectingEnable(false);
        parser.setHaController(controller);
        parser.setAlarmHandler(new LogAlarmHandler());
        parser.setEventFilter(new AviaterRegexFilter(settings.getProperty("canal.instance.filter.regex")));
        parser.setEventBlackFilter(
            new AviaterRegexFilter(settings.getProperty("canal.instance.filter.black.regex"), false));
        parser.setTransactionSize(1024);
        parser.setConnectionCharset("UTF-8");
        parser.setLogPositionManager(
            new FailbackLogPositionManager(new MemoryLogPositionManager(), new MetaLogPositionManager(positions)));
        parser.setMasterInfo(login);
        parser.setMasterPosition(begin);
        parser.setFilterQueryDml(Boolean.parseBoolean(settings.getProperty("canal.instance.filter.query.dml")));
        parser.setUseDruidDdlFilter(true);
        parser.setSupportBinlogFormats("ROW,STATEMENT,MIXED");
        parser.setSupportBinlogImages("FULL,MINIMAL,NOBLOB");
        parser.setParallel(Boolean.parseBoolean(settings.getProperty("canal.instance.parser.parallel")));
        parser.setParallelThreadSize(1);
        parser.setParallelBufferSize(256);
        parser.setEventSink(sink);
        parser.setTsdbJdbcUrl("");
        parser.setTsdbJdbcUserName("");
        parser.setTsdbJdbcPassword("");
        parser.setEnableTsdb(true);
        parser.setTableMetaTSDBFactory(new Schemas(settings.getProperty("canal.instance.tsdb.url")));
        return parser;
    }

    /** Keeps the tables' schemas in a database of H2, as the deployer's h2-tsdb.xml does. */
    private static final class Schemas implements TableMetaTSDBFactory {
        private final String url;

        Schemas(String url) {
            this.url = url;
        }

        @Override
        public TableMetaTSDB build(String destination, String springXml) {
            DruidDataSource source = new DruidDataSource();
            source.setDriverClassName("org.h2.Driver");
            source.setUrl(url);
            source.setUsername("canal");
            source.setPassword("canal");
            source.setMaxWait(10000);
            source.setTestWhileIdle(false);
            SqlSessionFactory sessions = sessions(source);
            MetaHistoryDAO history = new MetaHistoryDAO();
            history.setSqlSessionFactory(sessions);
            history.afterPropertiesSet();
            MetaSnapshotDAO snapshots = new MetaSnapshotDAO();
            snapshots.setSqlSessionFactory(sessions);
            snapshots.afterPropertiesSet();
            DatabaseTableMeta made = new DatabaseTableMeta();
            made.setMetaHistoryDAO(history);
            made.setMetaSnapshotDAO(snapshots);
            return made;
        }

        @Override
        public void destory(String destination) {
            // The process ends with it.
        }

        private static SqlSessionFactory sessions(DataSource source) {
            Configuration made =
                new Configuration(new Environment("h2", new SpringManagedTransactionFactory(), source));
            made.getTypeAliasRegistry().registerAlias("history", MetaHistoryDO.class);
            made.getTypeAliasRegistry().registerAlias("snapshot", MetaSnapshotDO.class);
            String columns = "binlog_file, binlog_offest, binlog_master_id, binlog_timestamp";
            String fields = "#{binlogFile}, #{binlogOffest}, #{binlogMasterId}, #{binlogTimestamp}";
            String selected = "id, destination, binlog_file AS binlogFile, binlog_offest AS binlogOffest,"
                + " binlog_master_id AS binlogMasterId, binlog_timestamp AS binlogTimestamp";
            String of = " WHERE destination = #{destination}";
            add(made, "MetaHistoryMapper", Map.of(
                "select id='findByTimestamp' parameterType='map' resultType='history'",
                "SELECT " + selected + ", use_schema AS useSchema, sql_schema AS sqlSchema, sql_table AS sqlTable,"
                    + " sql_text AS sqlText, sql_type AS sqlType, extra FROM meta_history" + of
                    + " AND binlog_timestamp >= #{snapshotTimestamp} AND binlog_timestamp &lt;= #{timestamp}"
                    + " ORDER BY binlog_timestamp, id",
                "insert id='insert' parameterType='history'",
                "INSERT INTO meta_history (gmt_create, gmt_modified, destination, " + columns
                    + ", use_schema, sql_schema, sql_table, sql_text, sql_type, extra)"
                    + " VALUES (CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, #{destination}, " + fields
                    + ", #{useSchema}, #{sqlSchema}, #{sqlTable}, #{sqlText}, #{sqlType}, #{extra})",
                "delete id='deleteByName' parameterType='map'",
                "DELETE FROM meta_history" + of,
                "delete id='deleteByTimestamp' parameterType='map'",
                "DELETE FROM meta_history" + of + " AND binlog_timestamp &lt; #{timestamp}"));
            add(made, "MetaSnapshotMapper", Map.of(
                "select id='findByTimestamp' parameterType='map' resultType='snapshot'",
                "SELECT " + selected + ", data, extra FROM meta_snapshot" + of
                    + " AND binlog_timestamp &lt; #{timestamp} ORDER BY binlog_timestamp DESC, id DESC LIMIT 1",
                "insert id='insert' parameterType='snapshot'",
                "INSERT INTO meta_snapshot (gmt_create, gmt_modified, destination, " + columns + ", data, extra)"
                    + " VALUES (CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, #{destination}, " + fields
                    + ", #{data}, #{extra})",
                "update id='update' parameterType='snapshot'",
                "UPDATE meta_snapshot SET data = #{data}" + of + " AND binlog_timestamp = 0",
                "delete id='deleteByName' parameterType='map'",
                "DELETE FROM meta_snapshot" + of,
                "delete id='deleteByTimestamp' parameterType='map'",
                "DELETE FROM meta_snapshot" + of + " AND binlog_timestamp &lt; #{timestamp} AND binlog_timestamp > 0"));
            return new DefaultSqlSessionFactory(made);
        }

        private static void add(Configuration configuration, String mapper, Map<String, String> statements) {
            StringBuilder xml = new StringBuilder("<?xml version='1.0' encoding='UTF-8'?>\n"
                + "<!DOCTYPE mapper PUBLIC '-//mybatis.org//DTD Mapper 3.0//EN'"
                + " 'http://mybatis.org/dtd/mybatis-3-mapper.dtd'>\n"
                + "<mapper namespace='" + MAPPERS + mapper + "'>\n");
            statements.forEach((opening, sql) -> xml.append("<").append(opening).append(">").append(sql).append("</")
                .append(opening, 0, opening.indexOf(' ')).append(">\n"));
            byte[] text = xml.append("</mapper>").toString().getBytes(StandardCharsets.UTF_8);
            new XMLMapperBuilder(
                new ByteArrayInputStream(text), configuration, mapper, configuration.getSqlFragments()).parse();
        }
    }
}
