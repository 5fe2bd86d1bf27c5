import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.message.MessageType;

/** Message trace as the Java client's own encoder writes and reads it. */
final class Tracing {
    private Tracing() {
    }

    /** trace_encode: records, each with the fields of TraceContext and one TraceBean under Java's names; answers text and keys of each. */
    static Object encode(JSONObject a) {
        List<Object> encoded = new ArrayList<>();
        a.getJSONArray("records").forEach(record -> encoded.add(one((JSONObject) record)));
        return encoded;
    }

    /** trace_decode: text; answers type, group, message id, keys and success of each record. */
    static Object decode(JSONObject a) {
        List<Object> decoded = new ArrayList<>();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(a.getString("text"))) {
            JSONObject shown = new JSONObject();
            shown.put("type", context.getTraceType().name());
            shown.put("group", context.getGroupName());
            shown.put("message_id", context.getTraceBeans().get(0).getMsgId());
            shown.put("keys", context.getTraceBeans().get(0).getKeys());
            shown.put("success", context.isSuccess());
            decoded.add(shown);
        }
        return decoded;
    }

    private static Object one(JSONObject a) {
        TraceBean bean = new TraceBean();
        bean.setTopic(a.getString("topic"));
        bean.setMsgId(a.getString("msgId"));
        bean.setTags(a.getString("tags"));
        bean.setKeys(a.getString("keys"));
        bean.setStoreHost(a.getString("storeHost"));
        bean.setBodyLength(a.getIntValue("bodyLength"));
        bean.setMsgType(MessageType.values()[a.getIntValue("msgType")]);
        bean.setOffsetMsgId(a.getString("offsetMsgId"));
        bean.setRetryTimes(a.getIntValue("retryTimes"));
        bean.setTransactionId(a.getString("transactionId"));
        if (a.getString("transactionState") != null) {
            bean.setTransactionState(LocalTransactionState.valueOf(a.getString("transactionState")));
        }
        bean.setFromTransactionCheck(a.getBooleanValue("fromTransactionCheck"));
        TraceContext context = new TraceContext();
        context.setTraceType(TraceType.valueOf(a.getString("type")));
        context.setTimeStamp(a.getLongValue("timeStamp"));
        context.setRegionId(a.getString("regionId"));
        context.setGroupName(a.getString("groupName"));
        context.setRequestId(a.getString("requestId"));
        context.setCostTime(a.getIntValue("costTime"));
        context.setSuccess(a.getBooleanValue("success"));
        context.setContextCode(a.getIntValue("contextCode"));
        context.setAccessChannel(AccessChannel.LOCAL);
        context.setTraceBeans(List.of(bean));
        TraceTransferBean made = TraceDataEncoder.encoderFromContextBean(context);
        JSONObject shown = new JSONObject();
        shown.put("text", made.getTransData());
        shown.put("keys", new TreeSet<>(made.getTransKey()));
        return shown;
    }
}
