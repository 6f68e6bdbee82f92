"""Tests Retry tokens and connection IDs of the binding without a gateway."""

import unittest

import equic

CLIENT, ORIGINAL, RETRY = ("192.0.2.1", 4711), b"original1", b"retried."


class Tokens(unittest.TestCase):
    def test_tokens_give_the_transport_parameters(self) -> None:
        ring = equic.Ring.generate()
        token = ring.seal(CLIENT, ORIGINAL, RETRY)
        for known in (ring, equic.Ring(bytes(ring))):
            self.assertEqual(known.verify(CLIENT, RETRY, token), (ORIGINAL, RETRY))
            mapped = ("::ffff:192.0.2.1", 4711, 0, 0)
            self.assertEqual(known.verify(mapped, RETRY, token).original_dcid, ORIGINAL)

    def test_tokens_that_are_forged_are_refused(self) -> None:
        ring = equic.Ring.generate()
        token = ring.seal(CLIENT, ORIGINAL, RETRY)
        cases = [
            (CLIENT, RETRY, token[:-1] + bytes([token[-1] ^ 1]), equic.Code.PROOF_FORGED),
            (("192.0.2.1", 4712), RETRY, token, equic.Code.PROOF_FORGED),
            (CLIENT, b"another.", token, equic.Code.PROOF_FORGED),
            (CLIENT, RETRY, token[:-1], equic.Code.PROOF_MALFORMED),
            (CLIENT, RETRY, b"", equic.Code.PROOF_MALFORMED),
            (CLIENT, RETRY, b"\xff" * 40, equic.Code.NEW_TOKEN),
        ]
        for client, dcid, changed, code in cases:
            with self.assertRaises(equic.Error) as caught:
                ring.verify(client, dcid, changed)
            self.assertEqual(caught.exception.code, code)
        with self.assertRaises(equic.Error):
            equic.Ring(bytes(128))


class Ids(unittest.TestCase):
    def test_ids_are_verifiable(self) -> None:
        ids = equic.ConnectionIds(equic.Ring.generate(), 12, b"ab")
        one, two = ids.generate(), ids.generate()
        self.assertEqual((len(one), one[1:3]), (12, b"ab"))
        self.assertNotEqual(one, two)
        ids.check(one)
        with self.assertRaises(equic.Error) as caught:
            ids.check(one[:-1] + bytes([one[-1] ^ 1]))
        self.assertEqual(caught.exception.code, equic.Code.PROOF_FORGED)
        ids.set_ring(equic.Ring.generate())
        ids.check(ids.generate())


if __name__ == "__main__":
    unittest.main()
