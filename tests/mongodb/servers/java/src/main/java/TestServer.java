import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import de.bwaldvogel.mongo.bson.Document;
import io.netty.channel.Channel;

/**
 * A MongoDB server in memory on 127.0.0.1, for tests: {@code java -jar mongo-java-server.jar [--port N]} (0: a free
 * one). It says on stdout where it listens, and exits when its stdin is closed: it does not outlive its test.
 *
 * <p>With one event loop, which is the default here, it does one command after the other. With
 * {@code -Dio.netty.eventLoopThreads=8} it is a bad server: what findAndModify answers is the stored document itself,
 * and another connection may change it before it is encoded. A counter then hands out a number twice.
 */
public final class TestServer {

    private static final String THREADS = "io.netty.eventLoopThreads";

    /**
     * That of MongoDB 5.0. The library says 8 for it, and drivers ask for 9 at least.
     */
    private static final class Version implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(5, 0, 0);
        }

        @Override
        public int getWireVersion() {
            return 13;
        }
    }

    /**
     * Counts commands by name. {@code {testOperations: 1}}, which no other server has, returns the counts, and is not
     * counted itself.
     */
    private static final class CountingBackend extends MemoryBackend {
        private final Map<String, LongAdder> counts = new ConcurrentHashMap<>();

        @Override
        public Document handleCommand(Channel channel, String databaseName, String command, Document query) {
            if (command.equals("testOperations")) {
                Document sums = new Document();
                new TreeMap<>(counts).forEach((name, count) -> sums.put(name, Long.valueOf(count.sum())));
                return new Document("counts", sums).append("ok", Double.valueOf(1));
            }
            counts.computeIfAbsent(command, name -> new LongAdder()).increment();
            return super.handleCommand(channel, databaseName, command, query);
        }
    }

    private TestServer() {
    }

    public static void main(String[] args) throws IOException {
        int port = 0;
        if (args.length == 2 && args[0].equals("--port")) {
            port = Integer.parseInt(args[1]);
        } else if (args.length != 0) {
            System.err.println("usage: mongo-java-server [--port N]");
            System.exit(2);
        }
        if (System.getProperty(THREADS) == null) {
            System.setProperty(THREADS, "1");
        }
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");

        MongoServer server = new MongoServer(new CountingBackend().version(new Version()));
        server.bind(new InetSocketAddress("127.0.0.1", port));
        System.out.println("listening on 127.0.0.1:" + server.getLocalAddress().getPort());
        System.out.flush();

        while (System.in.read() >= 0) {
            // Whatever comes is ignored.
        }
        // Nothing here is worth an orderly end.
        Runtime.getRuntime().halt(0);
    }
}
