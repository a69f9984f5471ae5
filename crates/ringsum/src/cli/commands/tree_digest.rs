//! One digest for a whole tree, as `docs/tree-digest.md` specifies it.

use ringsum::files::walk::Kind;

/// An entry's contribution to the digest, besides its path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node<'a> {
    /// A regular file with its hash, and whether its owner may execute it.
    File {
        /// The BLAKE3 hash of its content.
        hash: &'a [u8; 32],
        /// Whether its mode has the bit 0o100.
        is_executable: bool,
    },
    /// A symbolic link with its target.
    Link(&'a [u8]),
    /// A directory, whose entries are digested after it, or a special file.
    Other(&'a Kind),
}

/// Key derivation context, so that no tree digest equals the hash of a file.
const CONTEXT: &str = "ringsum 2026-11-21 tree digest 1";

/// Computes the digest of a tree from its entries, added in the byte order of their paths, where a
/// directory sorts as its name and a slash.
#[derive(Clone)]
pub(crate) struct TreeDigest(blake3::Hasher);

impl Default for TreeDigest {
    fn default() -> Self {
        TreeDigest(blake3::Hasher::new_derive_key(CONTEXT))
    }
}

impl TreeDigest {
    /// Adds the next entry. `path`: from the root of the tree, without leading or trailing slash.
    pub(crate) fn add(&mut self, path: &[u8], node: Node<'_>) {
        let letter = match node {
            Node::File { is_executable: false, .. } => b'f',
            Node::File { is_executable: true, .. } => b'x',
            Node::Link(_) => b'l',
            Node::Other(Kind::Fifo) => b'p',
            Node::Other(Kind::Socket) => b's',
            Node::Other(Kind::BlockDevice) => b'b',
            Node::Other(Kind::CharDevice) => b'c',
            Node::Other(_) => b'd',
        };
        self.0.update(&[letter]);
        self.add_bytes(path);
        match node {
            Node::File { hash, .. } => {
                self.0.update(hash);
            }
            Node::Link(target) => self.add_bytes(target),
            _ => {}
        }
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Returns the digest of all entries added.
    pub(crate) fn finalize(&self) -> blake3::Hash {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of `docs/tree-digest.md`.
    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let hash = *blake3::hash(b"hello\n").as_bytes();
        let mut digest = TreeDigest::default();
        digest.add(b"bin", Node::Other(&Kind::Directory));
        digest.add(b"bin/run", Node::File { hash: &hash, is_executable: true });
        digest.add(b"link", Node::Link(b"bin/run"));
        digest.add(b"pipe", Node::Other(&Kind::Fifo));
        let mut bytes = Vec::new();
        bytes.extend(b"d\x03\0\0\0\0\0\0\0bin");
        bytes.extend(b"x\x07\0\0\0\0\0\0\0bin/run");
        bytes.extend(hash);
        bytes.extend(b"l\x04\0\0\0\0\0\0\0link\x07\0\0\0\0\0\0\0bin/run");
        bytes.extend(b"p\x04\0\0\0\0\0\0\0pipe");
        assert_eq!(*digest.finalize().as_bytes(), blake3::derive_key(CONTEXT, &bytes));
    }

    #[test]
    fn everything_that_counts_changes_it() {
        let (a, b) = ([1; 32], [2; 32]);
        let file = |hash, is_executable| Node::File { hash, is_executable };
        let nodes = [
            file(&a, false),
            file(&a, true),
            file(&b, false),
            Node::Link(b""),
            Node::Link(b"x"),
            Node::Other(&Kind::Directory),
            Node::Other(&Kind::Fifo),
            Node::Other(&Kind::Socket),
        ];
        let mut seen = std::collections::HashSet::new();
        assert!(seen.insert(TreeDigest::default().finalize()));
        for path in [&b"p"[..], b"q"] {
            for node in nodes {
                let mut digest = TreeDigest::default();
                digest.add(path, node);
                assert!(seen.insert(digest.finalize()), "{path:?} {node:?}");
            }
        }
    }
}
