import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Commands that send: single messages as written, or a generated load in the background. */
final class Producing {
    private static final Kept<DefaultMQProducer> PRODUCERS = new Kept<>(DefaultMQProducer::shutdown);
    private static final Map<String, Load> LOADS = new ConcurrentHashMap<>();
    private static final AtomicLong NAMES = new AtomicLong();

    private Producing() {
    }

    /**
     * One producer for all commands, one for all loads, or one of its own for those that name one: it asks for routes anew. Ask for it
     * each time: it is ended when nobody does.
     */
    static DefaultMQProducer producer(JSONObject a) {
        String ns = a.getString("ns");
        boolean traced = a.getBooleanValue("traced");
        boolean loads = "produce".equals(a.getString("do"));
        return PRODUCERS.get(ns + " " + a.getString("producer") + " " + traced + " " + loads, () -> started(ns, traced, loads));
    }

    private static DefaultMQProducer started(String ns, boolean traced, boolean loads) {
        try {
            DefaultMQProducer producer = new DefaultMQProducer("peer_producer_" + NAMES.incrementAndGet());
            producer.setNamesrvAddr(ns);
            producer.setEnableTrace(traced);
            producer.setMaxMessageSize(4 * 1024 * 1024);
            if (loads) {
                producer.setPollNameServerInterval(2000); // a broker that was away is known again soon
            }
            producer.setSendMsgTimeout(10_000); // with the usual 3 s a busy machine looks like a broker that is away
            producer.setMqClientApiTimeout(10_000);
            producer.start();
            producer.batchMaxDelayMs(30_000); // the two threads that would gather batches for it look rarely
            return producer;
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** send: ns, topic, messages: [{text | base64, tag, keys, properties, delay, delay_ms, order_key, queue}], as_batch,
     * producer=null, traced=false (with message trace). Returns when consumers can read what needs not wait for its time: Apache's
     * broker answers a send before that. */
    static Object send(JSONObject a) throws Exception {
        DefaultMQProducer producer = producer(a);
        String topic = a.getString("topic");
        List<Object> results = new ArrayList<>();
        JSONArray wanted = a.getJSONArray("messages");
        if (a.getBooleanValue("as_batch")) {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < wanted.size(); i++) {
                batch.add(message(topic, wanted.getJSONObject(i)));
            }
            SendResult result = producer.send(batch);
            await(producer, result.getMessageQueue(), result.getQueueOffset() + batch.size());
            results.add(shown(result));
            return results;
        }
        Map<MessageQueue, Long> ends = new HashMap<>();
        for (int i = 0; i < wanted.size(); i++) {
            JSONObject one = wanted.getJSONObject(i);
            SendResult result = sent(producer, message(topic, one), one);
            if (!one.containsKey("delay") && !one.containsKey("delay_ms")) {
                ends.merge(result.getMessageQueue(), result.getQueueOffset() + 1, Math::max);
            }
            results.add(shown(result));
        }
        for (Map.Entry<MessageQueue, Long> end : ends.entrySet()) {
            await(producer, end.getKey(), end.getValue());
        }
        return results;
    }

    private static SendResult sent(DefaultMQProducer producer, Message message, JSONObject one) throws Exception {
        if (one.containsKey("order_key")) {
            return producer.send(message, new SelectMessageQueueByHash(), one.getString("order_key"));
        }
        if (one.containsKey("queue")) {
            int queue = one.getIntValue("queue");
            return producer.send(message, (queues, x, y) -> numbered(queues, queue), null);
        }
        return producer.send(message);
    }

    /** Waits until consumers can read a queue up to this offset. */
    private static void await(DefaultMQProducer producer, MessageQueue queue, long end) throws Exception {
        for (long limit = System.nanoTime() + 20_000_000_000L; producer.maxOffset(queue) < end; Thread.sleep(2)) {
            if (System.nanoTime() > limit) {
                throw new IllegalStateException(queue + " cannot be read up to " + end + " after 20 s");
            }
        }
    }

    private static MessageQueue numbered(List<MessageQueue> queues, int id) {
        return queues.stream().filter(queue -> queue.getQueueId() == id).findFirst().orElseThrow();
    }

    private static Message message(String topic, JSONObject one) {
        byte[] body = one.containsKey("base64")
            ? Base64.getDecoder().decode(one.getString("base64"))
            : one.getString("text").getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, body);
        if (one.getString("tag") != null) {
            message.setTags(one.getString("tag"));
        }
        if (one.getJSONArray("keys") != null) {
            message.setKeys(one.getJSONArray("keys").toJavaList(String.class));
        }
        if (one.getJSONObject("properties") != null) {
            one.getJSONObject("properties").forEach((key, value) -> message.putUserProperty(key, value.toString()));
        }
        if (one.containsKey("delay")) {
            message.setDelayTimeLevel(one.getIntValue("delay"));
        }
        if (one.containsKey("delay_ms")) {
            message.setDelayTimeMs(one.getLongValue("delay_ms"));
        }
        return message;
    }

    private static Object shown(SendResult result) {
        JSONObject line = new JSONObject();
        line.put("status", result.getSendStatus().name());
        line.put("id", result.getMsgId());
        line.put("offset_id", result.getOffsetMsgId());
        line.put("queue", result.getMessageQueue().getQueueId());
        line.put("offset", result.getQueueOffset());
        line.put("recall_handle", result.getRecallHandle());
        return line;
    }

    /** recall: ns, topic, handle. The id of the message that does not come. */
    static Object recall(JSONObject a) throws Exception {
        return producer(a).recallMessage(a.getString("topic"), a.getString("handle"));
    }

    /** A load: numbered messages `PREFIX NUMBER`, padded; remembers which numbers were acknowledged and which were not. */
    private static final class Load {
        final List<Integer> stored = Collections.synchronizedList(new ArrayList<>());
        final List<Integer> unknown = Collections.synchronizedList(new ArrayList<>());
        final AtomicInteger next = new AtomicInteger();
        final long started = System.nanoTime();
        volatile boolean stopped;
        volatile boolean done;
        volatile double seconds;
        volatile String firstProblem;
    }

    /**
     * produce: name, ns, topic, count, size, threads=1, rate=0 (per second, 0 = as fast as it goes), tag, prefix, order_keys=0 (spread
     * over so many keys, message n has key n % order_keys; then threads is 1 so that each key is sent in order), broker=null (send to
     * the queues of this broker alone, in turn), random=false (pads with noise instead of blanks). Returns at once.
     */
    static Object produce(JSONObject a) {
        Load load = new Load();
        LOADS.put(a.getString("name"), load);
        int threads = a.getIntValue("order_keys") > 0 ? 1 : Math.max(1, a.getIntValue("threads"));
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        for (int t = 0; t < threads; t++) {
            pool.submit(() -> drive(a, load));
        }
        pool.shutdown();
        new Thread(() -> {
            try {
                pool.awaitTermination(1, TimeUnit.HOURS);
            } catch (InterruptedException stopping) {
                Thread.currentThread().interrupt();
            }
            load.seconds = (System.nanoTime() - load.started) / 1e9;
            load.done = true;
        }).start();
        return "started";
    }

    private static void drive(JSONObject a, Load load) {
        int count = a.getIntValue("count");
        int rate = a.getIntValue("rate");
        int keys = a.getIntValue("order_keys");
        for (int number; !load.stopped && (number = load.next.getAndIncrement()) < count; ) {
            for (long wait; rate > 0 && (wait = load.started + number * 1_000_000_000L / rate - System.nanoTime()) > 0; ) {
                LockSupport.parkNanos(wait);
            }
            if (!attempt(a, load, number, keys)) {
                load.unknown.add(number);
            }
        }
    }

    /** With order keys a failed message is sent again until it is stored: what follows it must not overtake it. */
    private static boolean attempt(JSONObject a, Load load, int number, int keys) {
        Message message = numbered(a, number, keys);
        while (!load.stopped) {
            try {
                DefaultMQProducer producer = producer(a);
                if (keys > 0) {
                    producer.send(message, new SelectMessageQueueByHash(), number % keys);
                } else if (a.getString("broker") != null) {
                    producer.send(message, (queues, sent, chosen) -> {
                        List<MessageQueue> own = queues.stream().filter(q -> q.getBrokerName().equals(chosen)).toList();
                        return own.get(number % own.size());
                    }, a.getString("broker"));
                } else {
                    producer.send(message);
                }
                load.stored.add(number);
                return true;
            } catch (Exception problem) {
                if (load.firstProblem == null) {
                    load.firstProblem = problem.toString();
                }
                if (keys == 0) {
                    return false;
                }
                LockSupport.parkNanos(200_000_000L);
            }
        }
        return false;
    }

    private static Message numbered(JSONObject a, int number, int keys) {
        String start = (a.getString("prefix") == null ? "" : a.getString("prefix") + " ") + number;
        int size = Math.max(a.getIntValue("size"), start.length());
        StringBuilder text = new StringBuilder(size).append(start);
        while (text.length() < size) {
            text.append(' ');
        }
        byte[] body = text.toString().getBytes(StandardCharsets.UTF_8);
        if (a.getBooleanValue("random")) { // the client compresses what it can
            byte[] noise = new byte[size - start.length()];
            new Random(number).nextBytes(noise);
            System.arraycopy(noise, 0, body, start.length(), noise.length);
            if (noise.length > 0) {
                body[start.length()] = ' ';
            }
        }
        Message message = new Message(a.getString("topic"), body);
        if (a.getString("tag") != null) {
            message.setTags(a.getString("tag"));
        }
        if (keys > 0) {
            message.setKeys("k" + number % keys);
        }
        return message;
    }

    /** produced: name, stop=false. How far a load is: counts, and when it is done the numbers. */
    static Object produced(JSONObject a) {
        Load load = LOADS.get(a.getString("name"));
        load.stopped |= a.getBooleanValue("stop");
        JSONObject line = new JSONObject();
        line.put("done", load.done);
        line.put("stored_count", load.stored.size());
        line.put("unknown_count", load.unknown.size());
        line.put("seconds", load.done ? load.seconds : (System.nanoTime() - load.started) / 1e9);
        line.put("first_problem", load.firstProblem);
        if (load.done) {
            line.put("stored", new ArrayList<>(load.stored));
            line.put("unknown", new ArrayList<>(load.unknown));
        }
        return line;
    }
}
