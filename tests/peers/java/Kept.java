import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Clients that commands share. One that none has asked for while any command may last is shut down: each has some twenty
 * threads that wake up again and again, and looks for its servers for ever.
 */
final class Kept<C> {
    private static final ScheduledExecutorService SWEEPER = Executors.newSingleThreadScheduledExecutor();

    private record One<C>(C client, long used) {
    }

    private final ConcurrentHashMap<String, One<C>> all = new ConcurrentHashMap<>();

    Kept(Consumer<C> end) {
        SWEEPER.scheduleWithFixedDelay(() -> sweep(System.nanoTime() - TimeUnit.SECONDS.toNanos(100), end), 10, 10, TimeUnit.SECONDS);
    }

    C get(String name, Supplier<C> start) {
        return all.compute(name, (key, one) -> new One<>(one == null ? start.get() : one.client, System.nanoTime())).client;
    }

    private void sweep(long before, Consumer<C> end) {
        for (String name : all.keySet()) {
            all.computeIfPresent(name, (key, one) -> {
                if (one.used - before > 0) {
                    return one;
                }
                try {
                    end.accept(one.client);
                } catch (RuntimeException gone) {
                    // its servers are
                }
                return null;
            });
        }
    }
}
