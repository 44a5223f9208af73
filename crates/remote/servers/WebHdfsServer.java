import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS of one node in the directory that is given. Prints the port of its REST interface, and ends when its input does. */
public class WebHdfsServer {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set("dfs.permissions.enabled", "false");
        configuration.set("dfs.replication", "1");
        File directory = new File(arguments[0]);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration, directory).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("port " + cluster.getNameNode().getHttpAddress().getPort());
        System.out.flush();
        while (System.in.read() >= 0) {}
        cluster.shutdown();
        System.exit(0);
    }
}
