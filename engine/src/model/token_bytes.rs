//! The bytes that each token stands for, in a byte-level vocabulary.

/// Bytes of every token, flat.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TokenBytes {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl TokenBytes {
    /// Builds the table from the bytes of tokens `0, 1, …`.
    pub fn new<'a>(tokens: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut table = Self::default();
        for token in tokens {
            table.bytes.extend_from_slice(token);
            table.ends.push(table.bytes.len() as u32);
        }
        table
    }

    /// Bytes of a token; none for an id outside the vocabulary.
    #[must_use]
    pub fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// Number of ids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no ids.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Text of tokens; each maximal invalid byte sequence becomes one U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.get(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The byte that a character of a byte-level vocabulary stands for.
pub(crate) fn byte_of(character: char) -> Option<u8> {
    let code = character as u32;
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        // The other bytes are numbered from 256 on: 0..=32, 127..=160, 173.
        256..=288 => Some((code - 256) as u8),
        289..=322 => Some((code - 289 + 127) as u8),
        323 => Some(173),
        _ => None,
    }
}

/// Decodes token by token and holds back characters whose bytes have not all come yet.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    held: Vec<u8>,
}

impl StreamDecoder {
    /// Appends a token's bytes and returns the text that is complete now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut cut = self.held.len();
        // A character has at most four bytes, so only the last three may begin one that is not complete.
        for back in 1..=self.held.len().min(3) {
            let lead = self.held[self.held.len() - back];
            let needed = match lead {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                0x80..=0xbf => continue,
                _ => 1,
            };
            if needed > back {
                cut = self.held.len() - back;
            }
            break;
        }
        let text = String::from_utf8_lossy(&self.held[..cut]).into_owned();
        self.held.drain(..cut);
        text
    }

    /// What is held back, with U+FFFD in place of incomplete characters.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut seen = [false; 256];
        for code in 0..=0x200 {
            if let Some(byte) = char::from_u32(code).and_then(byte_of) {
                assert!(!std::mem::replace(&mut seen[byte as usize], true), "byte {byte} twice");
            }
        }
        assert!(seen.iter().all(|&seen| seen));
        assert_eq!((byte_of('Ġ'), byte_of('Ċ')), (Some(b' '), Some(b'\n')));
    }

    #[test]
    fn a_character_cut_across_tokens_appears_when_complete() {
        let mut decoder = StreamDecoder::default();
        let bytes = "aé漢😀".as_bytes();
        let mut text = String::new();
        for byte in bytes {
            text += &decoder.push(&[*byte]);
            assert!(!text.contains('\u{fffd}'));
        }
        assert_eq!(text, "aé漢😀");
        assert_eq!(decoder.push(&bytes[1..2]), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.push(&[0xff, b'x']), "\u{fffd}x");
    }
}
