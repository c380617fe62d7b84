//! The token that callers present when one is set (design.md §7).

use sha2::{Digest, Sha256};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Lets calls through that carry the token; all calls when none is set.
#[derive(Clone)]
pub struct TokenCheck {
    expected: Option<[u8; 32]>,
}

impl TokenCheck {
    /// With this token.
    pub fn new(token: Option<&str>) -> Self {
        Self { expected: token.map(|token| Sha256::digest(token).into()) }
    }
}

impl Interceptor for TokenCheck {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(expected) = self.expected else {
            return Ok(request);
        };
        let header = request.metadata().get("authorization");
        let token = header.and_then(|value| value.to_str().ok()).and_then(|value| value.strip_prefix("Bearer "));
        // Digests are compared, so that the time taken tells nothing about the token.
        match token.map(|token| <[u8; 32]>::from(Sha256::digest(token))) {
            Some(digest) if digest == expected => Ok(request),
            _ => Err(Status::unauthenticated("missing or wrong token; pass --token-file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(check: &TokenCheck, header: Option<&'static str>) -> bool {
        let mut request = Request::new(());
        if let Some(header) = header {
            request.metadata_mut().insert("authorization", header.parse().unwrap());
        }
        check.clone().call(request).is_ok()
    }

    #[test]
    fn only_the_token_opens() {
        let check = TokenCheck::new(Some("0123456789abcdef"));
        assert!(call(&check, Some("Bearer 0123456789abcdef")));
        for wrong in [None, Some("Bearer 0123456789abcdeF"), Some("0123456789abcdef"), Some("Bearer ")] {
            assert!(!call(&check, wrong), "{wrong:?}");
        }
        assert!(call(&TokenCheck::new(None), None));
    }
}
