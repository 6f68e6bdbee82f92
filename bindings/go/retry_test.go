package equic

import (
	"errors"
	"testing"
)

var original, retried = []byte("original1"), []byte("retried.")

func sealed(t *testing.T) (*Ring, []byte) {
	t.Helper()
	ring, err := GenerateRing()
	if err != nil {
		t.Fatal(err)
	}
	token, err := ring.Seal(udp("192.0.2.1:4711"), original, retried)
	if err != nil {
		t.Fatal(err)
	}
	return ring, token
}

func TestTokenGivesTheTransportParameters(t *testing.T) {
	ring, token := sealed(t)
	content, err := ring.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	handed, err := ReadRing(content)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := handed.Verify(udp("[::ffff:192.0.2.1]:4711"), retried, token)
	if err != nil || string(proof.OriginalDCID) != string(original) || string(proof.RetrySCID) != string(retried) {
		t.Fatal(proof, err)
	}
}

func TestTokenThatIsForgedIsRefused(t *testing.T) {
	ring, token := sealed(t)
	changed := append([]byte(nil), token...)
	changed[40] ^= 1
	for _, other := range []struct {
		client string
		dcid   []byte
		token  []byte
		want   Code
	}{
		{"192.0.2.1:4711", retried, changed, ErrProofForged},
		{"192.0.2.1:4712", retried, token, ErrProofForged},
		{"192.0.2.1:4711", original, token, ErrProofForged},
		{"192.0.2.1:4711", retried, token[1:], ErrProofMalformed},
		{"192.0.2.1:4711", retried, nil, ErrProofMalformed},
		{"192.0.2.1:4711", retried, []byte{0x80}, ErrNewToken},
	} {
		if _, err := ring.Verify(udp(other.client), other.dcid, other.token); !errors.Is(err, other.want) {
			t.Errorf("%v: %v", other, err)
		}
	}
	if _, err := ReadRing(make([]byte, 128)); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestIDsAreVerifiable(t *testing.T) {
	ring, _ := sealed(t)
	ids, err := NewConnectionIDs(ring, 12, []byte("ab"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := ids.Generate()
	if err != nil || len(id) != 12 || string(id[1:3]) != "ab" {
		t.Fatal(id, err)
	}
	if err := ids.Check(id); err != nil {
		t.Error(err)
	}
	id[11] ^= 1
	if err := ids.Check(id); !errors.Is(err, ErrProofForged) {
		t.Error(err)
	}
	other, err := GenerateRing()
	if err != nil {
		t.Fatal(err)
	}
	if err := ids.SetRing(other); err != nil {
		t.Error(err)
	}
}
