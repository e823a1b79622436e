package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/proto/errand/v1/errandv1connect"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.file, _ = a.sign(name, true)
	return a
}

// sign writes a certificate and its key, and returns their files.
func (a *authority) sign(name string, isAuthority bool) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: isAuthority, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if isAuthority {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if isAuthority {
		if a.cert, err = x509.ParseCertificate(raw); err != nil {
			a.t.Fatal(err)
		}
		a.key = key
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	writePEM(a.t, certFile, "CERTIFICATE", raw)
	writePEM(a.t, keyFile, "EC PRIVATE KEY", der)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTLSAndClientCertificates(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.sign("server", false)
	clientCert, clientKey := ours.sign("client", false)
	strangeCert, strangeKey := theirs.sign("stranger", false)
	for _, c := range []struct {
		name                         string
		clientCA                     string
		trust, clientCert, clientKey string
		works                        bool
	}{
		{"no client certificates asked for", "", ours.file, "", "", true},
		{"a server that is not trusted", "", theirs.file, "", "", false},
		{"a client certificate", ours.file, ours.file, clientCert, clientKey, true},
		{"no client certificate", ours.file, ours.file, "", "", false},
		{"a stranger's client certificate", ours.file, ours.file, strangeCert, strangeKey, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			serverTLS, err := TLSConfig(cert, key, c.clientCA)
			if err != nil {
				t.Fatal(err)
			}
			clientTLS, err := TLSClientConfig(c.trust, c.clientCert, c.clientKey)
			if err != nil {
				t.Fatal(err)
			}
			url := serveTLS(t, serverTLS)
			protocols := new(http.Protocols)
			protocols.SetHTTP2(true)
			transport := &http.Transport{TLSClientConfig: clientTLS, Protocols: protocols}
			t.Cleanup(transport.CloseIdleConnections)
			for _, options := range [][]connect.ClientOption{nil, {connect.WithGRPC()}} {
				client := errandv1connect.NewTaskServiceClient(&http.Client{Transport: transport}, url, options...)
				_, err = client.GetTask(t.Context(), &errandv1.GetTaskRequest{TaskId: someTask})
				// Through TLS one arrives at the next door: nobody has shown a key.
				if reached := connect.CodeOf(err) == connect.CodeUnauthenticated; reached != c.works {
					t.Errorf("the call ended with %v", err)
				}
			}
		})
	}
}

func serveTLS(t *testing.T, cfg *tls.Config) string {
	t.Helper()
	handler, err := Handler(Config{Region: region, Ready: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(true)
	s.Config.TLSConfig = cfg
	s.Config.ErrorLog = nil
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Config.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { s.Config.Close(); <-served })
	return "https://" + listener.Addr().String()
}

func TestTLSNamesTheFileAtFault(t *testing.T) {
	a := newAuthority(t, "ours")
	cert, key := a.sign("server", false)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		got  func() error
		want string
	}{
		{func() error { _, err := TLSConfig("", "", ""); return err }, "needs a certificate"},
		{func() error { _, err := TLSConfig(cert, "", ""); return err }, "needs a certificate"},
		{func() error { _, err := TLSConfig("missing.crt", key, ""); return err }, "missing.crt"},
		{func() error { _, err := TLSConfig(cert, empty, ""); return err }, "empty.pem"},
		{func() error { _, err := TLSConfig(cert, key, empty); return err }, "empty.pem"},
		{func() error { _, err := TLSConfig(cert, key, "missing.pem"); return err }, "missing.pem"},
		{func() error { _, err := TLSClientConfig(empty, "", ""); return err }, "empty.pem"},
		{func() error { _, err := TLSClientConfig("", cert, ""); return err }, "go together"},
		{func() error { _, err := TLSClientConfig("", cert, empty); return err }, "empty.pem"},
	} {
		if err := c.got(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want something about %s", err, c.want)
		}
	}
	if cfg, err := TLSConfig(cert, key, ""); err != nil || cfg.MinVersion < tls.VersionTLS12 {
		t.Errorf("%v, %v", cfg, err)
	}
}
