import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What the strategies of Java's client answer: {@code Allocating CASES ANSWERS}.
 *
 * <p>CASES is a file with a JSON list of {@code {"strategy", "me", "queues": [[topic, broker, id], ...], "members": [...]}} with
 * what the strategy needs: {@code rooms}, {@code nodes}, {@code list}. ANSWERS becomes a list as long: for each case the
 * strategy's {@code name} with the {@code queues} in its order, or the {@code error} that it throws.
 */
public class Allocating {
    public static void main(String[] args) throws Exception {
        JSONArray cases = JSON.parseArray(Files.readString(Path.of(args[0]), StandardCharsets.UTF_8));
        JSONArray answers = new JSONArray();
        for (int i = 0; i < cases.size(); i++) {
            answers.add(answer(cases.getJSONObject(i)));
        }
        Files.writeString(Path.of(args[1]), JSON.toJSONString(answers), StandardCharsets.UTF_8);
        System.exit(0);
    }

    private static JSONObject answer(JSONObject one) {
        JSONObject answer = new JSONObject();
        try {
            AllocateMessageQueueStrategy strategy = strategy(one.getString("strategy"), one);
            answer.put("name", strategy.getName());
            JSONArray queues = new JSONArray();
            for (MessageQueue queue : strategy.allocate("g", one.getString("me"), queues(one.getJSONArray("queues")),
                one.getList("members", String.class))) {
                queues.add(JSONArray.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
            }
            answer.put("queues", queues);
        } catch (RuntimeException problem) {
            answer.put("error", problem.getMessage());
        }
        return answer;
    }

    private static AllocateMessageQueueStrategy strategy(String name, JSONObject one) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(one.getIntValue("nodes"));
            case "CONFIG": {
                AllocateMessageQueueByConfig strategy = new AllocateMessageQueueByConfig();
                strategy.setMessageQueueList(queues(one.getJSONArray("list")));
                return strategy;
            }
            case "MACHINE_ROOM": {
                AllocateMessageQueueByMachineRoom strategy = new AllocateMessageQueueByMachineRoom();
                strategy.setConsumeridcs(new HashSet<>(one.getList("rooms", String.class)));
                return strategy;
            }
            default:
                return new AllocateMachineRoomNearby(strategy(name.substring("MACHINE_ROOM_NEARBY-".length()), one),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return room(queue.getBrokerName());
                        }

                        @Override
                        public String consumerDeployIn(String member) {
                            return room(member);
                        }
                    });
        }
    }

    /** What precedes the first @. */
    private static String room(String name) {
        int at = name.indexOf('@');
        return at < 0 ? name : name.substring(0, at);
    }

    private static List<MessageQueue> queues(JSONArray lines) {
        List<MessageQueue> found = new ArrayList<>();
        for (int i = 0; i < lines.size(); i++) {
            JSONArray line = lines.getJSONArray(i);
            found.add(new MessageQueue(line.getString(0), line.getString(1), line.getIntValue(2)));
        }
        return found;
    }
}
