//! Lookup of users in the user database of this machine.

/// Returns the numeric ID of a user from `/etc/passwd`. If the name is a number, returns this number. Returns `None` if
/// there is no such user.
pub fn user_id(user: &str) -> Option<u32> {
    if let Ok(number) = user.parse() {
        return Some(number);
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_known_by_name_and_number() {
        assert_eq!(user_id("root"), Some(0));
        assert_eq!(user_id("1001"), Some(1001));
        assert_eq!(user_id("no-such-user"), None);
    }
}
