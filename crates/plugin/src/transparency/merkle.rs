//! Merkle trees as in RFC 9162 s.2.1, with SHA-256.

use crate::bundle::sha256;

/// The SHA-256 hash of a node.
pub type Hash = [u8; 32];

/// Maximum number of hashes in an inclusion proof. It is enough for a tree of 2^63 leaves.
pub(crate) const MAX_PATH: usize = 63;

/// Returns the hash of a leaf (RFC 9162 s.2.1.1).
pub(crate) fn leaf(data: &[u8]) -> Hash {
    sha256(&[&[0], data].concat())
}

/// Returns the hash of a node with these two children (RFC 9162 s.2.1.1). The first byte of the
/// hashed data differs from that of a leaf, so a node cannot be mistaken for a leaf.
fn node(left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(left);
    bytes[33..].copy_from_slice(right);
    sha256(&bytes)
}

/// A Merkle tree, given by the hashes of its leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    leaves: Vec<Hash>,
}

impl Tree {
    /// Returns the tree with these leaves.
    pub fn new(leaves: Vec<Hash>) -> Tree {
        Tree { leaves }
    }

    /// Returns the hashes of the tree's leaves.
    pub fn leaves(&self) -> &[Hash] {
        &self.leaves
    }

    /// Returns the number of leaves.
    pub fn size(&self) -> u64 {
        self.leaves.len() as u64
    }

    pub(crate) fn push(&mut self, leaf: Hash) {
        self.leaves.push(leaf);
    }

    /// Returns the root hash (RFC 9162 s.2.1.1).
    pub fn root(&self) -> Hash {
        root(&self.leaves)
    }

    /// Returns the root hash of the tree's first `size` leaves, or `None` if the tree has fewer
    /// leaves.
    pub fn root_of_first(&self, size: u64) -> Option<Hash> {
        let size = usize::try_from(size).ok()?;
        Some(root(self.leaves.get(..size)?))
    }

    /// Returns the inclusion proof for leaf `index`, from the leaf up (RFC 9162 s.2.1.3.1). Returns
    /// `None` if the tree has no such leaf.
    pub fn proof(&self, index: u64) -> Option<Vec<Hash>> {
        let index = usize::try_from(index).ok().filter(|index| *index < self.leaves.len())?;
        let mut path = Vec::new();
        prove(&self.leaves, index, &mut path);
        Some(path)
    }
}

/// Splits at least two leaves into the two subtrees of RFC 9162. The number of leaves in the left
/// one is the largest power of two less than the total.
fn divide(leaves: &[Hash]) -> (&[Hash], &[Hash]) {
    leaves.split_at(leaves.len().next_power_of_two() / 2)
}

/// Returns the root hash of these leaves. The depth of the recursion is the height of the tree.
fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => sha256(&[]),
        [one] => *one,
        _ => {
            let (left, right) = divide(leaves);
            node(&root(left), &root(right))
        }
    }
}

fn prove(leaves: &[Hash], index: usize, path: &mut Vec<Hash>) {
    if leaves.len() < 2 {
        return;
    }
    let (left, right) = divide(leaves);
    if index < left.len() {
        prove(left, index, path);
        path.push(root(right));
    } else {
        prove(right, index - left.len(), path);
        path.push(root(left));
    }
}

/// Computes the root hash of a tree of `size` leaves in which `leaf` is leaf `index`, from the
/// hashes of an inclusion proof (RFC 9162 s.2.1.3.2). Returns `None` if a tree of this size cannot
/// have a proof of this length. The proof is valid if the result equals the tree's root.
pub fn root_by(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if index >= size || path.len() > MAX_PATH {
        return None;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, leaf);
    for beside in path {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            hash = node(beside, &hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node(&hash, beside);
        }
        at >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{hex, unhex};

    /// Leaves from the tests of the first implementation of Certificate Transparency. Each comes
    /// with the root hash of the tree that ends with this leaf.
    const KNOWN: [(&[u8], &str); 8] = [
        (b"", "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
        (b"\x00", "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
        (b"\x10", "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
        (b" !", "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"),
        (b"01", "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4"),
        (b"@ABC", "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef"),
        (b"PQRSTUVW", "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"),
        (b"`abcdefghijklmno", "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"),
    ];

    #[test]
    fn merkle_roots_match_certificate_transparency() {
        let mut tree = Tree::default();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(&tree.root()), empty);
        for (data, expected) in KNOWN {
            tree.push(leaf(data));
            assert_eq!(hex(&tree.root()), expected);
        }
        for (size, (_, expected)) in (1..).zip(KNOWN) {
            assert_eq!(tree.root_of_first(size), unhex(expected));
        }
        assert_eq!(tree.root_of_first(9), None);
    }

    /// In every small tree, each inclusion proof must be valid. It must become invalid if the leaf,
    /// index, size or path is changed.
    #[test]
    fn merkle_proofs_are_valid_for_their_leaf_only() {
        for size in 1..=33_u64 {
            let tree = Tree::new((0..size).map(|at| leaf(&at.to_be_bytes())).collect());
            let root = tree.root();
            for index in 0..size {
                let path = tree.proof(index).unwrap();
                let own = tree.leaves()[index as usize];
                assert_eq!(root_by(own, index, size, &path), Some(root), "{index} of {size}");
                assert_ne!(root_by(leaf(b"another"), index, size, &path), Some(root));
                for other in (0..size + 2).filter(|other| *other != index) {
                    assert_ne!(root_by(own, other, size, &path), Some(root), "{index} as {other}");
                }
                for cut in 0..path.len() {
                    assert_ne!(root_by(own, index, size, &path[..cut]), Some(root));
                }
                let longer = [path.clone(), vec![root]].concat();
                assert_ne!(root_by(own, index, size, &longer), Some(root));
                for at in 0..path.len() {
                    let mut forged = path.clone();
                    forged[at][0] ^= 1;
                    assert_ne!(root_by(own, index, size, &forged), Some(root));
                }
            }
            assert_eq!(tree.proof(size), None);
        }
        assert_eq!(root_by([0; 32], 0, 0, &[]), None);
        assert_eq!(root_by([0; 32], u64::MAX, u64::MAX, &[]), None);
        assert_eq!(root_by([0; 32], 0, u64::MAX, &[[0; 32]; 64]), None);
    }
}
