//! What must hold for any bytes in a sidecar and in an outboard. `fuzz/` tries random ones, and the
//! tests repeat those that it kept.

use std::io;

use ringsum::{Mode, Options, Outboard, OutboardWriter};

use crate::format::{self, CatalogueCode, HEAD_BYTES, Head};
use crate::sidecar::Sidecar;

/// Bytes are a sidecar or refused, and what is read from one can be written. Of the sidecar, the
/// hashes are put right first, because random ones never are.
pub fn sidecar(data: &[u8]) {
    let mut bytes = data.to_vec();
    let head_bytes = HEAD_BYTES as usize;
    for start in (0..bytes.len()).step_by(head_bytes) {
        let Some(head) = bytes.get_mut(start..start + head_bytes) else { continue };
        if head.starts_with(&format::MAGIC) {
            let hash = blake3::hash(&head[..head_bytes - 32]);
            head[head_bytes - 32..].copy_from_slice(hash.as_bytes());
            if let Ok(head) = Head::decode(head) {
                check_head(&head, &bytes, start);
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.guard");
    std::fs::write(&path, &bytes).unwrap();
    if let Ok(mut sidecar) = Sidecar::open(&path) {
        sidecar.check_nodes();
        for file in &sidecar.files {
            format::check_name(&file.name).unwrap();
        }
    }
}

fn check_head(head: &Head, bytes: &[u8], start: usize) {
    assert!(Head::decode(&head.encode()).is_ok_and(|again| again == *head));
    let rest = &bytes[start + HEAD_BYTES as usize..];
    let code = &head.catalogue;
    let Some(catalogue) = rest.get(..code.bytes as usize) else { return };
    if let Ok(files) = format::decode_catalogue(catalogue, head) {
        let again = format::encode_catalogue(&files);
        let code = CatalogueCode { bytes: again.len() as u64, ..*code };
        let head = Head { catalogue: code, ..head.clone() };
        assert_eq!(format::decode_catalogue(&again, &head).unwrap(), files);
    }
}

/// An outboard with some bytes replaced never makes damage pass, nor intact data fail.
pub fn outboard(data: &[u8]) {
    let Some((&[group, at, place], patch)) = data.split_first_chunk::<3>() else { return };
    let content = vec![0x5a; 9000];
    let content = &content[..];
    let group_bytes = 1024 << (group % 5);
    let nodes = std::sync::Mutex::new(vec![0; 8 + 64 * content.len().div_ceil(group_bytes)]);
    let len = content.len() as u64;
    let writer = OutboardWriter::new(&Mode::Hash, len, group_bytes as u64, |offset, bytes| {
        crate::lock(&nodes)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    });
    let whole = writer.hash(0, content).unwrap();
    let root = *writer.add(whole).unwrap().unwrap().hash().unwrap().as_bytes();
    drop(writer);
    let mut nodes = nodes.into_inner().unwrap();
    for (node, byte) in nodes.iter_mut().skip(usize::from(place) * 8).zip(patch) {
        *node ^= byte;
    }
    let read = |offset: u64, bytes: &mut [u8]| {
        let end = offset as usize + bytes.len();
        bytes.copy_from_slice(nodes.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    };
    let outboard = Outboard { len, group_bytes: group_bytes as u64, read: &read };
    let mut found = content.to_vec();
    let place = usize::from(at) * 35 % content.len();
    for is_damaged in [false, true] {
        found[place] ^= u8::from(is_damaged);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &found).unwrap();
        let source = blockring::Source::open(file.path()).unwrap();
        let (digest, bad) =
            ringsum::bad_ranges(&source, &outboard, &root, &Options::default(), &|_| ()).unwrap();
        assert_eq!(digest.unwrap().hash().unwrap() == blake3::Hash::from(root), !is_damaged);
        assert_eq!(bad.iter().any(|range| range.contains(&(place as u64))), is_damaged);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sidecars_that_fuzzing_kept() {
        crate::replay::corpus("sidecar", super::sidecar);
    }

    #[test]
    fn outboards_that_fuzzing_kept() {
        crate::replay::corpus("outboard", super::outboard);
    }
}
