//! Messages of ranks on their control connection: one byte for the kind, a length, a payload.

use std::io::{self, Read, Write};

/// The maximum payload, in bytes. A longer one is a sign of a damaged connection.
const MAX_BYTES: u64 = 1 << 36;

/// A message of one rank to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender is alive and has reached this step.
    Heartbeat(u64),
    /// All ranks have joined: the run begins.
    Welcome,
    /// The sender has finished the run.
    Leave,
    /// The run has failed, for this reason.
    Failed(String),
    /// The number of an exchange, and the sender's part.
    Part(u64, Vec<u8>),
    /// The number of an exchange, and the parts of all ranks in rank order.
    Gathered(u64, Vec<Vec<u8>>),
}

impl Message {
    /// Writes the message in one call.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.to_bytes())
    }

    /// The encoded message, for sending to several ranks.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let kind = match self {
            Self::Heartbeat(progress) => {
                payload.extend(progress.to_le_bytes());
                0u8
            }
            Self::Welcome => 1,
            Self::Leave => 2,
            Self::Failed(why) => {
                payload.extend(why.as_bytes());
                3
            }
            Self::Part(number, part) => {
                payload.extend(number.to_le_bytes());
                payload.extend(part);
                4
            }
            Self::Gathered(number, parts) => {
                payload.extend(number.to_le_bytes());
                for part in parts {
                    payload.extend((part.len() as u64).to_le_bytes());
                    payload.extend(part);
                }
                5
            }
        };
        let mut bytes = Vec::with_capacity(9 + payload.len());
        bytes.push(kind);
        bytes.extend((payload.len() as u64).to_le_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Reads one message.
    ///
    /// # Errors
    /// At the end of the connection, and for bytes that are not a message.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head)?;
        let (kind, len) = (head[0], u64::from_le_bytes(first_eight(&head[1..])?));
        if len > MAX_BYTES {
            return Err(io::Error::other(format!("a message of {len} bytes")));
        }
        // Grows as the bytes arrive: the length alone allocates nothing.
        let mut payload = Vec::new();
        if from.take(len).read_to_end(&mut payload)? as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match kind {
            0 => Ok(Self::Heartbeat(u64::from_le_bytes(first_eight(&payload)?))),
            1 => Ok(Self::Welcome),
            2 => Ok(Self::Leave),
            3 => Ok(Self::Failed(String::from_utf8_lossy(&payload).into_owned())),
            4 => {
                let number = u64::from_le_bytes(first_eight(&payload)?);
                Ok(Self::Part(number, payload.split_off(8)))
            }
            5 => {
                let number = u64::from_le_bytes(first_eight(&payload)?);
                let (mut rest, mut parts) = (&payload[8..], Vec::new());
                while !rest.is_empty() {
                    let len = usize::try_from(u64::from_le_bytes(first_eight(rest)?)).unwrap_or(usize::MAX);
                    let part = rest.get(8..).and_then(|rest| rest.get(..len)).ok_or_else(short)?;
                    parts.push(part.to_vec());
                    rest = &rest[8 + len..];
                }
                Ok(Self::Gathered(number, parts))
            }
            other => Err(io::Error::other(format!("a message of kind {other}"))),
        }
    }
}

fn first_eight(bytes: &[u8]) -> io::Result<[u8; 8]> {
    bytes.first_chunk().copied().ok_or_else(short)
}

fn short() -> io::Error {
    io::Error::other("a message that is too short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_as_it_was_sent() {
        for message in [
            Message::Heartbeat(7),
            Message::Welcome,
            Message::Leave,
            Message::Failed("rank 2 ended".to_owned()),
            Message::Part(3, vec![1, 2, 3]),
            Message::Part(4, Vec::new()),
            Message::Gathered(9, vec![vec![5; 300], Vec::new(), vec![0]]),
        ] {
            let bytes = message.to_bytes();
            assert_eq!(Message::read(&mut bytes.as_slice()).unwrap(), message);
            for len in 0..bytes.len() {
                assert!(Message::read(&mut &bytes[..len]).is_err(), "{message:?} cut at {len}");
            }
        }
    }

    #[test]
    fn a_message_that_lies_about_its_length_is_refused() {
        let mut part = Message::Gathered(9, vec![vec![5; 4]]).to_bytes();
        part[17] = 200;
        assert!(Message::read(&mut part.as_slice()).is_err());
        let mut huge = vec![4];
        huge.extend(u64::MAX.to_le_bytes());
        assert!(Message::read(&mut huge.as_slice()).is_err());
        assert!(Message::read(&mut [9u8, 0, 0, 0, 0, 0, 0, 0, 0].as_slice()).is_err());
    }
}
