//! Any text is a chat template or an error, and so is a conversation for it.

use feedline_core::ErrorKind;
use feedline_datasets::ChatTemplate;

/// `data` is the template, a zero byte, and the messages.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (source, messages) =
        text.split_once('\0').unwrap_or((text, r#"[{"role": "user", "content": "é 1"}]"#));
    let template = match ChatTemplate::new(source) {
        Ok(template) => template.with_token("bos_token", "<s>"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Data);
            assert!(!error.message().contains('\n'), "more than a line: {error}");
            return;
        }
    };
    let once = template.render(messages, "", "", true);
    if let Err(error) = &once {
        assert_eq!(error.kind(), ErrorKind::Sample);
    }
    let again = template.render(messages, "", "", true);
    assert_eq!(once.map_err(|error| error.to_string()), again.map_err(|error| error.to_string()));
}
