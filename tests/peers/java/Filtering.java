import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What the broker's SQL92 filter says: {@code Filtering CASES ANSWERS}.
 *
 * <p>CASES is a file with a JSON object: {@code properties}, a list of objects of texts, and {@code expressions}. ANSWERS becomes a
 * list with, per expression, {@code "illegal"} or a list with the value for each properties: {@code true}, {@code false},
 * {@code null} or {@code "error"}.
 */
public class Filtering {
    public static void main(String[] args) throws Exception {
        JSONObject cases = JSON.parseObject(Files.readString(Path.of(args[0]), StandardCharsets.UTF_8));
        JSONArray answers = new JSONArray();
        for (String text : cases.getList("expressions", String.class)) {
            answers.add(answer(text, cases.getJSONArray("properties")));
        }
        Files.writeString(Path.of(args[1]), answers.toString(com.alibaba.fastjson2.JSONWriter.Feature.WriteNulls),
            StandardCharsets.UTF_8);
        System.exit(0);
    }

    private static Object answer(String text, JSONArray all) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (Exception problem) {
            return "illegal";
        }
        JSONArray values = new JSONArray();
        for (int i = 0; i < all.size(); i++) {
            JSONObject properties = all.getJSONObject(i);
            try {
                values.add(expression.evaluate(new EvaluationContext() {
                    @Override
                    public Object get(String name) {
                        return properties.get(name);
                    }

                    @Override
                    public Map<String, Object> keyValues() {
                        return new HashMap<>(properties);
                    }
                }));
            } catch (Exception problem) {
                values.add("error");
            }
        }
        return values;
    }
}
