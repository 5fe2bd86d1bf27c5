import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The fields of a request as the Java client's own hook signs them, and clients that use that hook. */
final class Signing {
    private Signing() {
    }

    /** sign: requests, each of code, fields, base64, access_key, secret_key, security_token (may be absent). */
    static Object sign(JSONObject a) {
        List<Object> signed = new ArrayList<>();
        a.getJSONArray("requests").forEach(request -> signed.add(signOne((JSONObject) request)));
        return signed;
    }

    /** signed_trip: ns, topic, group, text, access_key, secret_key; through TLS. Sends one message and reads it; its text. */
    static Object trip(JSONObject a) throws Exception {
        AclClientRPCHook hook = new AclClientRPCHook(
            new SessionCredentials(a.getString("access_key"), a.getString("secret_key")));
        DefaultMQProducer producer = new DefaultMQProducer("makers_of_" + a.getString("group"), hook);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(a.getString("group"), hook);
        producer.setNamesrvAddr(a.getString("ns"));
        consumer.setNamesrvAddr(a.getString("ns"));
        producer.setInstanceName("signed " + a.getString("access_key") + a.getString("secret_key"));
        consumer.setInstanceName(producer.getInstanceName());
        producer.setSendMsgTimeout(30_000); // TLS in a JVM that is new to it, beside other tests
        producer.setUseTLS(true);
        consumer.setUseTLS(true);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        try {
            producer.start();
            byte[] text = a.getString("text").getBytes(StandardCharsets.UTF_8);
            producer.send(new Message(a.getString("topic"), text));
            consumer.subscribe(a.getString("topic"), "*");
            consumer.start();
            for (long end = System.nanoTime() + 60_000_000_000L; System.nanoTime() < end; ) {
                for (MessageExt found : consumer.poll(1000)) {
                    consumer.commitSync();
                    return new String(found.getBody(), StandardCharsets.UTF_8);
                }
            }
            throw new IllegalStateException("nothing was read");
        } catch (MQClientException refused) { // the broker's words are in its cause
            throw new IllegalStateException(refused.getMessage() + " " + refused.getCause(), refused);
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
    }

    private static Object signOne(JSONObject a) {
        RemotingCommand request = RemotingCommand.createRequestCommand(a.getIntValue("code"), null);
        HashMap<String, String> fields = new HashMap<>();
        a.getJSONObject("fields").forEach((name, value) -> fields.put(name, (String) value));
        request.setExtFields(fields);
        byte[] body = Base64.getDecoder().decode(a.getString("base64"));
        request.setBody(body.length == 0 ? null : body);
        SessionCredentials keys = new SessionCredentials(
            a.getString("access_key"), a.getString("secret_key"), a.getString("security_token"));
        new AclClientRPCHook(keys).doBeforeRequest("127.0.0.1:10911", request);
        return request.getExtFields();
    }
}
