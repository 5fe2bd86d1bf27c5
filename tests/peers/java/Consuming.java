import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Commands that consume: push consumers by name, and what each of them has seen. */
final class Consuming {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    private Consuming() {
    }

    private static final class Member {
        final List<Object> seen = new ArrayList<>();
        DefaultMQPushConsumer consumer;
        FileOutputStream history;
        int pid;
        long work;

        /** One line, in one write. Without a history file the JVM remembers what it saw. */
        void brief(String event, MessageExt message) {
            String number = new String(message.getBody(), StandardCharsets.UTF_8).split(" ", 2)[0].trim();
            String line = String.format(Locale.ROOT, "{\"event\":\"%s\",\"at\":%.6f,\"pid\":%d,\"queue\":%d,\"offset\":%d,\"attempt\":%d,"
                + "\"number\":%s}\n", event, System.nanoTime() / 1e9, pid, message.getQueueId(), message.getQueueOffset(),
                message.getReconsumeTimes() + 1, number);
            try {
                history.write(line.getBytes(StandardCharsets.UTF_8));
            } catch (IOException problem) {
                throw new UncheckedIOException(problem);
            }
        }
    }

    /**
     * consume: name, ns, group, topic, tags="*", orderly=false, from="first" | "last", fail_first=0 (so many attempts of each message
     * fail), max_retries=-1, suspend_ms=1000 (orderly), instance=null (an instance name: several members of one group in this JVM),
     * ip=null (what its client id begins with, so that it sorts before or behind other members),
     * work_ms=0 (how long each message takes), broadcast=false, allocation="AVG" (or another strategy's name), server_rebalance=false
     * (true: it pops where the broker says so), history=null (a file: lines as recording.py's `brief` writes them, with `pid`),
     * traced=false (with message trace).
     */
    static Object start(JSONObject a) throws Exception {
        Member member = new Member();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(a.getString("group"));
        member.consumer = consumer;
        consumer.setNamesrvAddr(a.getString("ns"));
        consumer.setEnableTrace(a.getBooleanValue("traced"));
        consumer.setConsumeFromWhere("last".equals(a.getString("from"))
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(a.containsKey("max_retries") ? a.getIntValue("max_retries") : -1);
        consumer.setSuspendCurrentQueueTimeMillis(a.containsKey("suspend_ms") ? a.getLongValue("suspend_ms") : 1000);
        if (a.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        if (a.getBooleanValue("server_rebalance")) {
            consumer.setClientRebalance(false);
        }
        consumer.subscribe(a.getString("topic"), a.containsKey("tags") ? a.getString("tags") : "*");
        if (a.getString("instance") != null) {
            consumer.setInstanceName(a.getString("instance"));
        }
        if (a.getString("ip") != null) {
            consumer.setClientIP(a.getString("ip"));
        }
        if ("AVG_BY_CIRCLE".equals(a.getString("allocation"))) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
        } else if ("CONSISTENT_HASH".equals(a.getString("allocation"))) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueConsistentHash());
        }
        if (a.getString("history") != null) {
            member.history = new FileOutputStream(a.getString("history"), true);
            member.pid = a.getIntValue("pid");
        }
        member.work = a.getLongValue("work_ms");
        int failures = a.getIntValue("fail_first");
        if (a.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (list, context) -> take(member, list, failures)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> take(member, list, failures)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        begin(consumer);
        MEMBERS.put(a.getString("name"), member);
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    /**
     * Starts a consumer that brokers know from then on. The heartbeat of {@code start} is left out when that of the timer is under
     * way, which may not name the group yet: its first messages would come with the next heartbeat, 30 s later.
     */
    static void begin(DefaultMQPushConsumer consumer) throws Exception {
        consumer.start();
        MQClientInstance client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory();
        for (int left = 100; left > 0 && !client.sendHeartbeatToAllBrokerWithLock(); left--) {
            Thread.sleep(10);
        }
    }

    private static boolean take(Member member, List<MessageExt> list, int failures) {
        boolean succeeded = true;
        for (MessageExt message : list) {
            boolean fine = message.getReconsumeTimes() >= failures;
            succeeded &= fine;
            if (member.history != null) {
                member.brief("start", message);
                LockSupport.parkNanos(member.work * 1_000_000);
                member.brief("done", message);
                continue;
            }
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

    /** Stops with the consumers of `consume`. */
    static void keep(String name, DefaultMQPushConsumer consumer) {
        Member member = new Member();
        member.consumer = consumer;
        MEMBERS.put(name, member);
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
