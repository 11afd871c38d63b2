// Runs the assignors of Apache Kafka's Java client on groups read from standard input, for
// tests/reference/java_assignors.py, which documents the format.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public final class AssignorRunner {
    private final Map<String, Node> nodes = new TreeMap<>();
    private final List<PartitionInfo> partitions = new ArrayList<>();
    private final Map<String, Subscription> members = new LinkedHashMap<>();
    private String assignor = "";

    public static void main(String[] args) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        AssignorRunner group = new AssignorRunner();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "assignor" -> {
                    group = new AssignorRunner();
                    group.assignor = words[1];
                }
                case "topic" -> group.topic(words[1], words[2]);
                case "member" -> group.member(words);
                case "run" -> out.println(group.run());
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    private void topic(String name, String racksOfPartitions) {
        int number = 0;
        for (String racks : racksOfPartitions.split(";", -1)) {
            List<Node> replicas = new ArrayList<>();
            for (String rack : racks.split(",", -1)) {
                replicas.add(nodes.computeIfAbsent(rack, key -> new Node(
                    nodes.size(), "localhost", 9000 + nodes.size(), key.equals("-") ? null : key)));
            }
            Node[] all = replicas.toArray(new Node[0]);
            partitions.add(new PartitionInfo(name, number++, all[0], all, all));
        }
    }

    private void member(String[] words) {
        List<String> topics = words[5].isEmpty() ? List.of() : List.of(words[5].split(","));
        List<TopicPartition> owned = new ArrayList<>();
        for (String item : words[6].isEmpty() ? new String[0] : words[6].split(",")) {
            int colon = item.lastIndexOf(':');
            owned.add(new TopicPartition(
                item.substring(0, colon), Integer.parseInt(item.substring(colon + 1))));
        }
        ByteBuffer userData =
            words[7].equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(words[7]));
        Subscription subscription = new Subscription(
            topics, userData, owned, Integer.parseInt(words[4]),
            words[3].equals("-") ? Optional.empty() : Optional.of(words[3]));
        if (!words[2].equals("-")) {
            subscription.setGroupInstanceId(Optional.of(words[2]));
        }
        members.put(words[1], subscription);
    }

    private String run() {
        ConsumerPartitionAssignor made = switch (assignor) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(assignor);
        };
        Cluster cluster = new Cluster(
            "cluster", nodes.values(), partitions, Collections.emptySet(), Collections.emptySet());
        Map<String, Assignment> result;
        try {
            result = made.assign(cluster, new GroupSubscription(new HashMap<>(members)))
                .groupAssignment();
        } catch (RuntimeException error) {
            return "error " + error.getClass().getName();
        }
        StringBuilder line = new StringBuilder("assigned");
        for (Map.Entry<String, Assignment> entry : new TreeMap<>(result).entrySet()) {
            line.append(' ').append(entry.getKey()).append('=');
            String separator = "";
            for (TopicPartition tp : entry.getValue().partitions()) {
                line.append(separator).append(tp.topic()).append(':').append(tp.partition());
                separator = ",";
            }
        }
        return line.toString();
    }
}
