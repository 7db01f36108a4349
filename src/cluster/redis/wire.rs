//! Requests as a script's arguments, and what scripts answer. Times are microseconds, everything is text.

use std::time::Duration;

use redis::Value;

use crate::{
    cluster::{
        engine::{
            Change, End, HoldKind, HoldNote, Line, MemberView, Overview, Reply, Request, Session, TURN, View,
        },
        unit::{Claim, Unit},
    },
    sync::Arc,
};

fn micros(duration: Duration) -> String {
    duration.as_micros().to_string()
}

/// The arguments of a request's script.
pub fn write(request: &Request, channel: &str, out: &mut Vec<String>) {
    if let Some(session) = request.session() {
        out.extend([session.epoch.to_string(), session.number.to_string()]);
    }
    match request {
        Request::Join { member, ttl, weight, previous } => {
            out.extend([member.to_string(), micros(*ttl), weight.to_string()]);
            match previous {
                Some(session) => out.extend([session.epoch.to_string(), session.number.to_string()]),
                None => out.extend([String::new(), String::new()]),
            }
        }
        Request::Register { units, .. } => {
            out.extend(units.iter().flat_map(|(unit, rank)| [unit.to_string(), rank.to_string()]));
        }
        Request::Renew { line, .. } => out.extend([write_line(line), TURN.to_string()]),
        Request::Claim { count, end, skip, .. } => {
            let end = match end {
                End::Best => "best",
                End::Worst => "worst",
            };
            out.extend([count.to_string(), end.to_owned()]);
            out.extend(skip.iter().map(ToString::to_string));
        }
        Request::Return { claims, .. } => {
            out.extend(claims.iter().flat_map(|claim| [claim.unit.to_string(), claim.token.to_string()]));
        }
        Request::Reinstate { claims, .. } => {
            out.extend(claims.iter().flat_map(|(claim, rank)| {
                [claim.unit.to_string(), claim.token.to_string(), rank.to_string()]
            }))
        }
        Request::Hold(notes) => {
            out.push(channel.to_owned());
            for note in notes {
                let change = match note.change {
                    Change::Cleared => "-".to_owned(),
                    Change::Set(None) => "*".to_owned(),
                    Change::Set(Some(duration)) => micros(duration),
                };
                out.extend([note.kind.name(), &note.name, &change, &note.origin].map(str::to_owned));
            }
        }
        Request::Owned { .. } | Request::Leave { .. } | Request::Holds | Request::Overview => {}
    }
}

/// A line without its member, whose name the server has since it joined.
fn write_line(line: &Line) -> String {
    format!("{} {} {} {}", line.need, line.spare, line.held, line.weight)
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn number<T: std::str::FromStr>(value: &Value) -> Option<T> {
    text(value)?.parse().ok()
}

/// A number, or none for an empty text.
fn maybe<T: std::str::FromStr>(value: &Value) -> Option<Option<T>> {
    let text = text(value)?;
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn claim(unit: &Value, token: &Value) -> Option<Claim> {
    Some(Claim { unit: Unit::parse(text(unit)?)?, token: number(token)? })
}

/// What a member said last.
fn read_line(line: &str) -> Option<MemberView> {
    let mut parts = line.splitn(5, ' ');
    let mut next = || parts.next()?.parse().ok();
    let line = Line { need: next()?, spare: next()?, held: next()?, weight: next()? };
    Some(MemberView { member: parts.next()?.into(), line })
}

/// A hold, as scripts and messages tell of it.
pub fn read_note(text: &str) -> Option<HoldNote> {
    let mut parts = text.splitn(6, '\n');
    let kind = HoldKind::named(parts.next()?)?;
    let version = parts.next()?.parse().ok()?;
    let change = match parts.next()? {
        "-" => Change::Cleared,
        "*" => Change::Set(None),
        left => Change::Set(Some(Duration::from_micros(left.parse().ok()?))),
    };
    let (epoch, origin) = (parts.next()?.into(), parts.next()?.into());
    Some(HoldNote { name: parts.next()?.into(), kind, change, origin, epoch, version })
}

/// Holds. What cannot be read is left out, a kind that later versions have perhaps: it would blind everybody to the others.
fn read_notes(notes: &[Value]) -> Vec<HoldNote> {
    notes.iter().filter_map(|note| read_note(text(note)?)).collect()
}

/// What a script has answered; `None` if it is nothing that scripts answer.
pub fn read(value: Value) -> Option<Reply> {
    let (first, rest) = list(&value)?.split_first()?;
    Some(match text(first)? {
        "joined" => {
            let [epoch, session] = rest else { return None };
            Reply::Joined(Session { epoch: text(epoch)?.into(), number: number(session)? })
        }
        "refused" => Reply::Refused { ttl: Duration::from_micros(number(rest.first()?)?) },
        "gone" => Reply::Gone { epoch: text(rest.first()?)?.into() },
        "done" => Reply::Done,
        "claims" => {
            let claims = rest.chunks(2).map(|pair| claim(pair.first()?, pair.get(1)?));
            Reply::Claims(claims.collect::<Option<_>>()?)
        }
        "holds" => {
            let (version, notes) = rest.split_first()?;
            Reply::Holds(read_notes(notes), number(version)?)
        }
        "renewed" => Reply::Renewed(read_view(rest)?),
        "overview" => Reply::Overview(read_overview(rest)?),
        _ => return None,
    })
}

fn read_view(rest: &[Value]) -> Option<View> {
    let [session, free, best, worst, owned, next_expiry, holds, quarantine, turn, members] = rest else {
        return None;
    };
    let session: u64 = number(session)?;
    // A line that cannot be read, of a later version or somebody's hand, is that of one who is not there; one's own must be.
    let mut numbered: Vec<(u64, MemberView)> = list(members)?
        .chunks(2)
        .filter_map(|pair| Some((number(pair.first()?)?, read_line(text(pair.get(1)?)?)?)))
        .collect();
    numbered.sort_by(|(a, one), (b, other)| (&one.member, a).cmp(&(&other.member, b)));
    let me = numbered.iter().position(|(number, _)| *number == session)?;
    Some(View {
        me,
        members: numbered.into_iter().map(|(_, view)| view).collect(),
        free: number(free)?,
        best_free: maybe(best)?,
        worst_free: maybe(worst)?,
        owned: number(owned)?,
        next_expiry: maybe(next_expiry)?.map(Duration::from_micros),
        holds: number(holds)?,
        quarantine: Some(number(quarantine)?).filter(|&left| left > 0).map(Duration::from_micros),
        turn: number(turn)?,
    })
}

fn read_overview(rest: &[Value]) -> Option<Overview> {
    let [epoch, quarantine, free, members, claims, holds] = rest else { return None };
    let mut overview = Overview {
        epoch: text(epoch)?.into(),
        quarantine: Some(number(quarantine)?).filter(|&left| left > 0).map(Duration::from_micros),
        free: number(free)?,
        holds: read_notes(list(holds)?),
        ..Overview::default()
    };
    let mut names = std::collections::HashMap::new();
    for member in list(members)?.chunks(4) {
        let [session, line, left, owned] = member else { return None };
        let Some(view) = read_line(text(line)?) else { continue };
        names.insert(number::<u64>(session)?, Arc::clone(&view.member));
        overview.members.push((view, number(owned)?, Duration::from_micros(number(left)?)));
    }
    for triple in list(claims)?.chunks(3) {
        let [unit, token, session] = triple else { return None };
        let name = names.get(&number::<u64>(session)?).cloned().unwrap_or_else(|| "".into());
        overview.claims.push((claim(unit, token)?, name));
    }
    overview.claims.sort_by(|(a, _), (b, _)| a.unit.cmp(&b.unit));
    Some(overview)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn notes_may_have_any_names() {
        let note = read_note("cooling\n7\n1500\ne\norigin\na\nb").unwrap();
        assert_eq!((&*note.name, note.version), ("a\nb", 7));
        assert_eq!(note.change, Change::Set(Some(Duration::from_micros(1_500))));
        assert!(read_note("cooling\n7\nsoon\ne\norigin\na").is_none());
        assert!(read_note("resting\n7\n-\ne\norigin\na").is_none());
    }

    #[test]
    fn foreign_answers_are_refused() {
        for value in [
            Value::Nil,
            Value::Int(1),
            Value::Array(vec![]),
            Value::Array(vec![bulk("claims"), bulk("0#a")]),
            Value::Array(vec![bulk("joined"), bulk("e")]),
            Value::Array(vec![bulk("renewed"), bulk("1")]),
            Value::Array(vec![bulk("else")]),
        ] {
            assert_eq!(read(value), None);
        }
    }

    #[test]
    fn holds_that_cannot_be_read_hide_no_others() {
        let holds = ["resting\n7\n-\ne\norigin\na", "cooling", "excluded\n8\n*\ne\norigin\nb"];
        let mut answer = vec![bulk("holds"), bulk("8")];
        answer.extend(holds.map(bulk));
        let Some(Reply::Holds(notes, 8)) = read(Value::Array(answer)) else { panic!("it is an answer") };
        assert_eq!(notes.iter().map(|note| &*note.name).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn claims_read_back() {
        let answer = Value::Array(vec![bulk("claims"), bulk("3#a#b"), bulk("1780000000000000")]);
        let unit = Unit { name: "a#b".into(), index: 3 };
        assert_eq!(read(answer), Some(Reply::Claims(vec![Claim { unit, token: 1_780_000_000_000_000 }])));
    }
}
