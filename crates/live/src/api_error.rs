//! What errors of the API server mean.

use kube::Error;

use crate::deadline::DeadlineExceeded;
use crate::write_fence::LeaseLost;

/// The HTTP status of a rejected request; nothing if there was no answer.
pub(crate) fn status_code(error: &Error) -> Option<u16> {
    match error {
        Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether the same request may succeed a moment later.
pub(crate) fn is_retryable(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
        // A call that took as long as it may is better spent on deciding anew.
        // And without the lease nothing is to be written at all.
        Error::Service(cause) => !cause.is::<DeadlineExceeded>() && !cause.is::<LeaseLost>(),
        Error::HyperError(_) | Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Whether it could not be created because the name is taken. Other conflicts mean that nothing was done.
pub(crate) fn is_already_exists(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

/// For objects that need not exist any more.
pub(crate) fn ignore_not_found<T>(result: Result<T, Error>) -> Result<(), Error> {
    not_found_as_none(result).map(|_| ())
}

pub(crate) fn not_found_as_none<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if status_code(&error) == Some(404) => Ok(None),
        result => result.map(Some),
    }
}

/// Whether it was written; false if another client wrote the object first.
pub(crate) fn conflict_as_false<T>(result: Result<T, Error>) -> Result<bool, Error> {
    match result {
        Err(error) if status_code(&error) == Some(409) => Ok(false),
        result => result.map(|_| true),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn rejected(code: u16) -> Error {
        Error::Api(Box::new(Status { code, ..Status::default() }))
    }

    #[test]
    fn only_passing_errors_are_retried() {
        for code in [429, 500, 503, 504] {
            assert!(is_retryable(&rejected(code)), "{code}");
        }
        for code in [403, 404, 409, 422] {
            assert!(!is_retryable(&rejected(code)), "{code}");
        }
    }
}
