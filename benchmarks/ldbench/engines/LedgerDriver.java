import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * BookKeeper's client for a program that is not written in Java: takes requests over one TCP connection and answers them there.
 *
 * <p>Arguments: "format URI" makes the metadata of a cluster and ends; "serve URI PORT COPIES ACKNOWLEDGEMENTS ENTRIES" connects to PORT on
 * loopback and serves until the connection closes. ENTRIES are read from bookies at a time. Numbers on the wire are big-endian.
 *
 * <p>Requests: C request(int): create a ledger. A request(int) ledger(long) count(int) lengths(int...) bytes: add entries. B request(int)
 * ledger(long): its bookies. R reader(int) ledger(long) tail(byte): read, from the start or behind the last added entry. G reader(int): one batch was
 * consumed. X reader(int): stop reading. Answers: K request(int) text: done. E request(int) text: failed. D reader(int) count(int) lengths(int...)
 * bytes: entries. F reader(int) text: the reader broke. K also tells, by the reader's number, that a reader is ready.
 */
public final class LedgerDriver {
  private static final byte[] PASSWORD = {};
  private static final int LONG_POLL_MS = 1000;
  private static final int BATCHES_UNDER_WAY = 8;

  private final BookKeeper client;
  private final DataInputStream in;
  private final DataOutputStream out;
  private final int copies;
  private final int acknowledgements;
  private final int entriesAtOnce;
  private final Map<Long, LedgerHandle> writers = new ConcurrentHashMap<>();
  private final Map<Integer, Reader> readers = new ConcurrentHashMap<>();

  private LedgerDriver(BookKeeper client, Socket socket, int copies, int acknowledgements, int entriesAtOnce) throws IOException {
    this.client = client;
    this.in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 20));
    this.out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream(), 1 << 20));
    this.copies = copies;
    this.acknowledgements = acknowledgements;
    this.entriesAtOnce = entriesAtOnce;
  }

  public static void main(String[] arguments) throws Exception {
    String uri = arguments[1];
    if (arguments[0].equals("format")) {
      ServerConfiguration configuration = new ServerConfiguration();
      configuration.setMetadataServiceUri(uri);
      System.exit(BookKeeperAdmin.initNewCluster(configuration) ? 0 : 1);
    }
    ClientConfiguration configuration = new ClientConfiguration();
    configuration.setMetadataServiceUri(uri);
    // the default lets a client add 5000 entries a second
    configuration.setThrottleValue(0);
    // tells readers of the last entry while nothing follows it
    configuration.setExplictLacInterval(1);
    try (Socket socket = new Socket("127.0.0.1", Integer.parseInt(arguments[2]))) {
      socket.setTcpNoDelay(true);
      BookKeeper client = new BookKeeper(configuration);
      int[] numbers = {Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]), Integer.parseInt(arguments[5])};
      new LedgerDriver(client, socket, numbers[0], numbers[1], numbers[2]).serve();
    }
    System.exit(0);
  }

  private void serve() throws IOException, InterruptedException {
    while (true) {
      int operation;
      try {
        operation = in.readUnsignedByte();
      } catch (EOFException end) {
        return;
      }
      int number = in.readInt();
      switch (operation) {
        case 'C' -> create(number);
        case 'A' -> add(number, in.readLong());
        case 'B' -> bookies(number, in.readLong());
        case 'R' -> read(number, in.readLong(), in.readByte() != 0);
        case 'G' -> go(number);
        case 'X' -> stop(number);
        default -> throw new IOException("operation " + operation);
      }
    }
  }

  private void create(int request) {
    client.asyncCreateLedger(
        copies,
        copies,
        acknowledgements,
        BookKeeper.DigestType.CRC32C,
        PASSWORD,
        (code, ledger, context) -> {
          if (code == BKException.Code.OK) {
            writers.put(ledger.getId(), ledger);
            answer('K', request, Long.toString(ledger.getId()));
          } else {
            answer('E', request, BKException.getMessage(code));
          }
        },
        null,
        Collections.emptyMap());
  }

  private void add(int request, long ledger) throws IOException {
    byte[][] entries = new byte[in.readInt()][];
    for (int index = 0; index < entries.length; index++) {
      entries[index] = new byte[in.readInt()];
    }
    for (byte[] entry : entries) {
      in.readFully(entry);
    }
    LedgerHandle writer = writers.get(ledger);
    AtomicInteger missing = new AtomicInteger(entries.length);
    AtomicInteger failure = new AtomicInteger(BKException.Code.OK);
    for (byte[] entry : entries) {
      writer.asyncAddEntry(
          entry,
          (code, handle, number, context) -> {
            if (code != BKException.Code.OK) {
              failure.set(code);
            }
            if (missing.decrementAndGet() == 0) {
              int worst = failure.get();
              answer(worst == BKException.Code.OK ? 'K' : 'E', request, worst == BKException.Code.OK ? "" : BKException.getMessage(worst));
            }
          },
          null);
    }
  }

  private void bookies(int request, long ledger) {
    List<String> names = new ArrayList<>();
    writers.get(ledger).getLedgerMetadata().getAllEnsembles().lastEntry().getValue().forEach(bookie -> names.add(bookie.getId()));
    answer('K', request, String.join(",", names));
  }

  private void read(int number, long ledger, boolean tail) {
    Reader reader = new Reader(number, ledger, tail ? writers.get(ledger).getLastAddConfirmed() + 1 : 0);
    readers.put(number, reader);
    reader.start();
  }

  private void go(int number) {
    Reader reader = readers.get(number);
    if (reader != null) {
      reader.room.release();
    }
  }

  private void stop(int number) {
    Reader reader = readers.remove(number);
    if (reader != null) {
      reader.stopped = true;
      reader.room.release();
    }
  }

  private void answer(char kind, int number, String text) {
    try {
      synchronized (out) {
        out.writeByte(kind);
        out.writeInt(number);
        out.writeUTF(text);
        out.flush();
      }
    } catch (IOException gone) {
      throw new UncheckedIOException(gone);
    }
  }

  private final class Reader extends Thread {
    private final int number;
    private final long ledger;
    private final Semaphore room = new Semaphore(BATCHES_UNDER_WAY);
    private long next;
    private volatile boolean stopped;

    Reader(int number, long ledger, long next) {
      super("reader-" + number);
      setDaemon(true);
      this.number = number;
      this.ledger = ledger;
      this.next = next;
    }

    @Override
    public void run() {
      try (LedgerHandle handle = client.openLedgerNoRecovery(ledger, BookKeeper.DigestType.CRC32C, PASSWORD)) {
        answer('K', number, "");
        while (!stopped) {
          long last = Math.min(handle.getLastAddConfirmed(), next + entriesAtOnce - 1);
          if (last < next) {
            await(handle);
          } else {
            List<byte[]> entries = new ArrayList<>();
            handle.readEntries(next, last).asIterator().forEachRemaining(entry -> entries.add(entry.getEntry()));
            deliver(entries);
          }
        }
      } catch (BKException | IOException broken) {
        answer('F', number, broken.toString());
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
      }
    }

    /** Waits for the next entry or for news of the last one. */
    private void await(LedgerHandle handle) throws BKException, InterruptedException, IOException {
      CountDownLatch done = new CountDownLatch(1);
      List<byte[]> entries = new ArrayList<>();
      AtomicInteger result = new AtomicInteger();
      handle.asyncReadLastConfirmedAndEntry(
          next,
          LONG_POLL_MS,
          false,
          (code, last, entry, context) -> {
            result.set(code);
            if (code == BKException.Code.OK && entry != null) {
              entries.add(entry.getEntry());
            }
            done.countDown();
          },
          null);
      done.await();
      if (result.get() == BKException.Code.NoSuchLedgerExistsException) {
        // bookies do not know a ledger before its first entry
        sleep(1);
        return;
      }
      if (result.get() != BKException.Code.OK) {
        throw new IOException(BKException.getMessage(result.get()));
      }
      if (!entries.isEmpty()) {
        deliver(entries);
      } else if (handle.getLastAddConfirmed() < next) {
        // what a bookie was told apart from entries need not come with this answer
        handle.readExplicitLastConfirmed();
      }
    }

    private void deliver(List<byte[]> entries) throws InterruptedException, IOException {
      next += entries.size();
      room.acquire();
      synchronized (out) {
        out.writeByte('D');
        out.writeInt(number);
        out.writeInt(entries.size());
        for (byte[] entry : entries) {
          out.writeInt(entry.length);
        }
        for (byte[] entry : entries) {
          out.write(entry);
        }
        out.flush();
      }
    }
  }
}
