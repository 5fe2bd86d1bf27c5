import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Commands that ask and answer: requests, replies, and the checks of transactions. */
final class Asking {
    private static final Kept<TransactionMQProducer> TRANSACTIONS = new Kept<>(TransactionMQProducer::shutdown);
    private static final Map<String, List<Object>> CHECKED = new ConcurrentHashMap<>();

    private Asking() {
    }

    /** request: ns, topic, text, timeout_ms. The reply as `read` shows messages. */
    static Object request(JSONObject a) throws Exception {
        DefaultMQProducer producer = Producing.producer(a);
        Message message = new Message(a.getString("topic"), a.getString("text").getBytes(StandardCharsets.UTF_8));
        return Consuming.shown((MessageExt) producer.request(message, a.getLongValue("timeout_ms")));
    }

    /** reply: ns, group, topic, prefix. A consumer that answers each request with PREFIX and its body. */
    static Object reply(JSONObject a) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(a.getString("group"));
        consumer.setNamesrvAddr(a.getString("ns"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(a.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
            for (MessageExt request : list) {
                String text = a.getString("prefix") + new String(request.getBody(), StandardCharsets.UTF_8);
                try {
                    Producing.producer(a).send(MessageUtil.createReplyMessage(request, text.getBytes(StandardCharsets.UTF_8)), 3000);
                } catch (Exception problem) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Consuming.begin(consumer);
        Consuming.keep(a.getString("name"), consumer);
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    /**
     * transaction: ns, group, topic, text, local, check: "commit" | "rollback" | "unknown". One producer per group and cluster; the last
     * `check` of a group answers. The result is the state that the local part said.
     */
    static Object transaction(JSONObject a) throws Exception {
        TransactionMQProducer producer = member(a);
        Message message = new Message(a.getString("topic"), a.getString("text").getBytes(StandardCharsets.UTF_8));
        TransactionSendResult result = producer.sendMessageInTransaction(message, state(a.getString("local")));
        return result.getLocalTransactionState().name();
    }

    /** transaction_member: ns, group, topic, check. Joins the producer group and is connected to the brokers of the topic. */
    static Object transactionMember(JSONObject a) throws Exception {
        TransactionMQProducer producer = member(a);
        MQClientInstance client = producer.getDefaultMQProducerImpl().getmQClientFactory();
        client.updateTopicRouteInfoFromNameServer(a.getString("topic"));
        client.sendHeartbeatToAllBrokerWithLock();
        return "joined";
    }

    /** checked: group. The bodies that brokers have asked this JVM about. */
    static Object checked(JSONObject a) {
        List<Object> seen = CHECKED.getOrDefault(a.getString("group"), List.of());
        synchronized (seen) {
            return new JSONArray(seen);
        }
    }

    private static TransactionMQProducer member(JSONObject a) {
        String group = a.getString("group");
        TransactionMQProducer producer = TRANSACTIONS.get(a.getString("ns") + " " + group, () -> started(a, group));
        producer.setTransactionListener(new Listener(group, state(a.getString("check"))));
        return producer;
    }

    private static TransactionMQProducer started(JSONObject a, String group) {
        try {
            CHECKED.put(group, new ArrayList<>());
            TransactionMQProducer producer = new TransactionMQProducer(group);
            producer.setNamesrvAddr(a.getString("ns"));
            producer.setInstanceName(group + "@" + a.getString("ns")); // otherwise clusters share one client
            producer.setSendMsgTimeout(10_000);
            producer.setMqClientApiTimeout(10_000);
            producer.setTransactionListener(new Listener(group, state(a.getString("check"))));
            producer.start();
            producer.batchMaxDelayMs(30_000);
            return producer;
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static LocalTransactionState state(String name) {
        return switch (name) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    private record Listener(String group, LocalTransactionState check) implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object local) {
            return (LocalTransactionState) local;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            List<Object> seen = CHECKED.get(group);
            synchronized (seen) {
                seen.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return check;
        }
    }
}
