import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Commands that consume: push consumers by name, and what each of them has seen. */
final class Consuming {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    private Consuming() {
    }

    private static final class Member {
        final List<Object> seen = new ArrayList<>();
        DefaultMQPushConsumer consumer;
    }

    /**
     * consume: name, ns, group, topic, tags="*", orderly=false, from="first" | "last", fail_first=0 (so many attempts of each message
     * fail), max_retries=-1, suspend_ms=1000 (orderly).
     */
    static Object start(JSONObject a) throws Exception {
        Member member = new Member();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(a.getString("group"));
        member.consumer = consumer;
        consumer.setNamesrvAddr(a.getString("ns"));
        consumer.setConsumeFromWhere("last".equals(a.getString("from"))
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(a.containsKey("max_retries") ? a.getIntValue("max_retries") : -1);
        consumer.setSuspendCurrentQueueTimeMillis(a.containsKey("suspend_ms") ? a.getLongValue("suspend_ms") : 1000);
        consumer.subscribe(a.getString("topic"), a.containsKey("tags") ? a.getString("tags") : "*");
        int failures = a.getIntValue("fail_first");
        if (a.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (list, context) -> take(member, list, failures)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> take(member, list, failures)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        MEMBERS.put(a.getString("name"), member);
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    private static boolean take(Member member, List<MessageExt> list, int failures) {
        boolean succeeded = true;
        for (MessageExt message : list) {
            boolean fine = message.getReconsumeTimes() >= failures;
            succeeded &= fine;
            JSONObject line = shown(message);
            line.put("at", System.nanoTime() / 1e9); // the clock of time.monotonic() on Linux
            line.put("done", fine);
            synchronized (member.seen) {
                member.seen.add(line);
            }
        }
        return succeeded;
    }

    /** A message as tests read it, by push consumers and by {@code read}. */
    static JSONObject shown(MessageExt message) {
        JSONObject line = new JSONObject();
        line.put("topic", message.getTopic());
        line.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        line.put("tag", message.getTags());
        line.put("keys", message.getKeys());
        line.put("properties", message.getProperties());
        line.put("queue", message.getQueueId());
        line.put("offset", message.getQueueOffset());
        line.put("attempt", message.getReconsumeTimes() + 1);
        line.put("id", message.getMsgId());
        return line;
    }

    /** consumed: name, since=0. What that member has seen, from that index on. */
    static Object consumed(JSONObject a) {
        Member member = MEMBERS.get(a.getString("name"));
        synchronized (member.seen) {
            return new JSONArray(member.seen.subList(Math.min(a.getIntValue("since"), member.seen.size()), member.seen.size()));
        }
    }

    static Object stop(JSONObject a) {
        MEMBERS.get(a.getString("name")).consumer.shutdown();
        return "stopped";
    }
}
