import java.io.ByteArrayInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** A TLS context from PEM files, which Java does not read by itself. */
final class Tls {
    private Tls() {}

    static SSLContext context(String ca, String cert, String key) throws Exception {
        KeyStore trusted = empty();
        int number = 0;
        for (Certificate one : certificates(ca)) {
            trusted.setCertificateEntry("ca" + number++, one);
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        KeyStore keys = empty();
        if (cert != null) {
            keys.setKeyEntry("own", privateKey(key), new char[0], certificates(cert).toArray(new Certificate[0]));
        }
        own.init(keys, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static KeyStore empty() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static Collection<? extends Certificate> certificates(String file) throws Exception {
        return CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(Files.readAllBytes(Path.of(file))));
    }

    private static PrivateKey privateKey(String file) throws Exception {
        String text = Files.readString(Path.of(file)).replaceAll("-----[A-Z ]+-----", "").replaceAll("\\s", "");
        PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(text));
        try {
            return KeyFactory.getInstance("RSA").generatePrivate(encoded);
        } catch (InvalidKeySpecException notRsa) {
            return KeyFactory.getInstance("EC").generatePrivate(encoded);
        }
    }
}
