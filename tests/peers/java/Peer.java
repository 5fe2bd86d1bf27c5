import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The Java client as a partner in tests: one process for a whole test session.
 *
 * <p>Each line on stdin is a command, {@code {"id": 7, "do": "send", "ns": "127.0.0.1:9876", ...}}. Each is answered by one line
 * on stdout, {@code {"id": 7, "ok": ...}} or {@code {"id": 7, "error": "..."}}. Commands run side by side, each in a thread of
 * its own; answers come in the order in which they are done. The process ends when its stdin ends.
 */
public class Peer {
    private static final PrintStream OUT = System.out;

    interface Command {
        Object run(JSONObject arguments) throws Exception;
    }

    private static final Map<String, Command> COMMANDS = Map.ofEntries(
        Map.entry("send", Producing::send),
        Map.entry("produce", Producing::produce),
        Map.entry("produced", Producing::produced),
        Map.entry("recall", Producing::recall),
        Map.entry("request", Asking::request),
        Map.entry("reply", Asking::reply),
        Map.entry("transaction", Asking::transaction),
        Map.entry("transaction_member", Asking::transactionMember),
        Map.entry("checked", Asking::checked),
        Map.entry("consume", Consuming::start),
        Map.entry("consumed", Consuming::consumed),
        Map.entry("stop_consumer", Consuming::stop),
        Map.entry("create_topic", Inspecting::createTopic),
        Map.entry("offsets", Inspecting::offsets),
        Map.entry("topic_stats", Inspecting::topicStats),
        Map.entry("read", Inspecting::read),
        Map.entry("members", Inspecting::members),
        Map.entry("search_offset", Inspecting::searchOffset),
        Map.entry("view", Inspecting::view),
        Map.entry("admin", Inspecting::admin),
        Map.entry("sign", Signing::sign),
        Map.entry("signed_trip", Signing::trip),
        Map.entry("trace_encode", Tracing::encode),
        Map.entry("trace_decode", Tracing::decode));

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // what libraries print is no answer
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answer(0, "ok", "ready");
        for (String line; (line = in.readLine()) != null; ) {
            JSONObject command = JSON.parseObject(line);
            threads.submit(() -> serve(command));
        }
        System.exit(0);
    }

    private static void serve(JSONObject command) {
        long id = command.getLongValue("id");
        try {
            Command named = COMMANDS.get(command.getString("do"));
            if (named == null) {
                throw new IllegalArgumentException("unknown command " + command.getString("do"));
            }
            answer(id, "ok", named.run(command));
        } catch (Throwable problem) {
            answer(id, "error", problem.getCause() == null ? problem.toString() : problem + " <- " + problem.getCause());
        }
    }

    private static void answer(long id, String kind, Object value) {
        JSONObject line = new JSONObject();
        line.put("id", id);
        line.put(kind, value);
        byte[] text = JSON.toJSONString(line, JSONWriter.Feature.WriteMapNullValue).getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(text, 0, text.length);
            OUT.write('\n');
            OUT.flush();
        }
    }
}
