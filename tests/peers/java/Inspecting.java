import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.OffsetNotFoundException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Commands that look: topics, offsets, members, stored messages, and the admin tool itself. */
final class Inspecting {
    private static final Kept<DefaultMQAdminExt> ADMINS = new Kept<>(DefaultMQAdminExt::shutdown);
    private static final Kept<DefaultMQPullConsumer> READERS = new Kept<>(DefaultMQPullConsumer::shutdown);

    private Inspecting() {
    }

    private static DefaultMQAdminExt admin(String address) {
        return ADMINS.get(address, () -> {
            try {
                DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000L);
                admin.setMqClientApiTimeout(20_000);
                admin.setNamesrvAddr(address);
                admin.setInstanceName("peer_admin_" + address.replace(':', '_'));
                admin.start();
                return admin;
            } catch (Exception problem) {
                throw new IllegalStateException(problem);
            }
        });
    }

    /** create_topic: ns, topic, queues. On every broker; returns when the name server routes to it. */
    static Object createTopic(JSONObject a) throws Exception {
        DefaultMQAdminExt admin = admin(a.getString("ns"));
        TopicConfig config = new TopicConfig(a.getString("topic"), a.getIntValue("queues"), a.getIntValue("queues"), 6);
        Exception last = null;
        // Apache's broker tells the name server at once, with the version of all its topics. Of two topics that change at
        // the same moment both carry the last version; the name server then takes the second one for known, for ever.
        for (int attempt = 0; attempt < 18; attempt++) {
            for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
                if (attempt > 0) {
                    config.setOrder(true); // a change that is told with a version of its own
                    admin.createAndUpdateTopicConfig(broker.selectBrokerAddr(), config);
                    config.setOrder(false);
                }
                admin.createAndUpdateTopicConfig(broker.selectBrokerAddr(), config);
            }
            for (long end = System.nanoTime() + 5_000_000_000L; System.nanoTime() < end; Thread.sleep(20)) {
                try {
                    for (QueueData data : admin.examineTopicRouteInfo(config.getTopicName()).getQueueDatas()) {
                        if (data.getReadQueueNums() == config.getReadQueueNums()) {
                            return "created";
                        }
                    }
                } catch (Exception notYet) {
                    last = notYet;
                }
            }
        }
        throw new IllegalStateException("no route to the new topic " + config.getTopicName(), last);
    }

    /** offsets: ns, topic, group. By queue: {min, max, committed: number or null}. */
    static Object offsets(JSONObject a) throws Exception {
        DefaultMQAdminExt admin = admin(a.getString("ns"));
        MQClientAPIImpl calls = admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
        Map<String, Object> queues = new TreeMap<>();
        for (QueueData data : admin.examineTopicRouteInfo(a.getString("topic")).getQueueDatas()) {
            String address = admin.examineBrokerClusterInfo().getBrokerAddrTable().get(data.getBrokerName()).selectBrokerAddr();
            for (int id = 0; id < data.getReadQueueNums(); id++) {
                MessageQueue queue = new MessageQueue(a.getString("topic"), data.getBrokerName(), id);
                JSONObject line = new JSONObject();
                line.put("min", calls.getMinOffset(address, queue, 3000));
                line.put("max", calls.getMaxOffset(address, queue, 3000));
                line.put("committed", a.getString("group") == null ? null : committed(calls, address, queue, a.getString("group")));
                queues.put(String.valueOf(id), line);
            }
        }
        return queues;
    }

    private static Long committed(MQClientAPIImpl calls, String address, MessageQueue queue, String group) throws Exception {
        QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(queue.getTopic());
        header.setQueueId(queue.getQueueId());
        header.setSetZeroIfNotFound(false);
        try {
            return calls.queryConsumerOffset(address, header, 3000);
        } catch (OffsetNotFoundException none) {
            return null;
        }
    }

    /** topic_stats: ns, topic. By queue: {min, max}. */
    static Object topicStats(JSONObject a) throws Exception {
        Map<String, Object> queues = new TreeMap<>();
        admin(a.getString("ns")).examineTopicStats(a.getString("topic")).getOffsetTable().forEach((queue, offset) -> {
            JSONObject line = new JSONObject();
            line.put("min", offset.getMinOffset());
            line.put("max", offset.getMaxOffset());
            queues.put(String.valueOf(queue.getQueueId()), line);
        });
        return queues;
    }

    private static DefaultMQPullConsumer reader(String address) {
        return READERS.get(address, () -> {
            try {
                DefaultMQPullConsumer reader = new DefaultMQPullConsumer("peer_reader");
                reader.setNamesrvAddr(address);
                reader.setInstanceName("peer_reader_" + address.replace(':', '_'));
                reader.start();
                return reader;
            } catch (Exception problem) {
                throw new IllegalStateException(problem);
            }
        });
    }

    /** read: ns, topic, tags="*". Every stored message of a topic, by queue and offset; no group's offset moves. */
    static Object read(JSONObject a) throws Exception {
        DefaultMQPullConsumer reader = reader(a.getString("ns"));
        List<Object> messages = new ArrayList<>();
        for (MessageQueue queue : reader.fetchSubscribeMessageQueues(a.getString("topic"))) {
            long offset = reader.minOffset(queue);
            long end = reader.maxOffset(queue);
            while (offset < end) {
                PullResult result = reader.pull(queue, a.containsKey("tags") ? a.getString("tags") : "*", offset, 32);
                if (result.getMsgFoundList() != null) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        messages.add(Consuming.shown(message));
                    }
                }
                if (result.getNextBeginOffset() <= offset) {
                    break;
                }
                offset = result.getNextBeginOffset();
            }
        }
        return messages;
    }

    /** members: ns, group. The client ids that the broker lists; an error answer (no member) becomes its code and text. */
    static Object members(JSONObject a) throws Exception {
        DefaultMQAdminExt admin = admin(a.getString("ns"));
        MQClientAPIImpl calls = admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
        JSONObject line = new JSONObject();
        List<String> ids = new ArrayList<>();
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            try {
                ids.addAll(calls.getConsumerIdListByGroup(broker.selectBrokerAddr(), a.getString("group"), 3000));
            } catch (MQBrokerException refused) {
                line.put("code", refused.getResponseCode());
                line.put("remark", refused.getErrorMessage());
            }
        }
        line.put("ids", ids);
        return line;
    }

    /** search_offset: ns, topic, queue, timestamp_ms. */
    static Object searchOffset(JSONObject a) throws Exception {
        MessageQueue queue = new MessageQueue(a.getString("topic"), "broker-a", a.getIntValue("queue"));
        return admin(a.getString("ns")).searchOffset(queue, a.getLongValue("timestamp_ms"));
    }

    /** view: ns, topic, message_id. One message by its offset id. */
    static Object view(JSONObject a) throws Exception {
        return Consuming.shown(admin(a.getString("ns")).viewMessage(a.getString("topic"), a.getString("message_id")));
    }

    /** admin: arguments: [...]. Apache's own command-line tool, inside this process; returns what it printed. One at a time. */
    static synchronized Object admin(JSONObject a) {
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(a.getJSONArray("arguments").toJavaList(String.class).toArray(new String[0]), null);
        } finally {
            System.setOut(before);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
