import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The fields of a request as the Java client's own hook signs them. */
final class Signing {
    private Signing() {
    }

    /** sign: requests, each of code, fields, base64, access_key, secret_key, security_token (may be absent). */
    static Object sign(JSONObject a) {
        List<Object> signed = new ArrayList<>();
        a.getJSONArray("requests").forEach(request -> signed.add(signOne((JSONObject) request)));
        return signed;
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
