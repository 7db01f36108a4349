//! Which builds a piece of source belongs to.

use syn::{Attribute, Meta, Token, punctuated::Punctuated};

/// Whether something is compiled in the library as it ships, and in the library as loom runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builds {
    pub product: bool,
    pub loom: bool,
}

impl Builds {
    pub const BOTH: Builds = Builds { product: true, loom: true };

    /// What is left of them under these attributes.
    pub fn under(self, attributes: &[Attribute]) -> Result<Builds, String> {
        let mut left = self;
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")) {
            let condition: Meta = attribute.parse_args().map_err(|error| error.to_string())?;
            left.product &= evaluate(&condition, Build::Product)?.can_hold;
            left.loom &= evaluate(&condition, Build::Loom)?.can_hold;
        }
        Ok(left)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    /// Any target, any features.
    Product,
    /// The one that `loom` builds.
    Loom,
}

/// What a condition can be, for all that is known of a build.
#[derive(Clone, Copy)]
struct Truth {
    can_hold: bool,
    can_fail: bool,
}

const YES: Truth = Truth { can_hold: true, can_fail: false };
const NO: Truth = Truth { can_hold: false, can_fail: true };
const EITHER: Truth = Truth { can_hold: true, can_fail: true };

fn evaluate(condition: &Meta, build: Build) -> Result<Truth, String> {
    let name = condition.path().get_ident().map(ToString::to_string).unwrap_or_default();
    let in_loom = |truth| if build == Build::Loom { truth } else { EITHER };
    match (name.as_str(), condition) {
        ("any" | "all" | "not", Meta::List(list)) => {
            let parts = list
                .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
                .map_err(|error| error.to_string())?;
            let parts: Vec<Truth> =
                parts.iter().map(|part| evaluate(part, build)).collect::<Result<_, _>>()?;
            Ok(match name.as_str() {
                "any" => Truth {
                    can_hold: parts.iter().any(|part| part.can_hold),
                    can_fail: parts.iter().all(|part| part.can_fail),
                },
                "all" => Truth {
                    can_hold: parts.iter().all(|part| part.can_hold),
                    can_fail: parts.iter().any(|part| part.can_fail),
                },
                _ => Truth { can_hold: parts[0].can_fail, can_fail: parts[0].can_hold },
            })
        }
        ("loom" | "crossbeam_loom", Meta::Path(_)) => Ok(if build == Build::Loom { YES } else { NO }),
        ("test" | "doctest" | "shuttle" | "leasehold_counted" | "leasehold_gateless" | "miri", _) => Ok(NO),
        ("debug_assertions", Meta::Path(_)) => Ok(in_loom(YES)),
        ("feature", Meta::NameValue(feature)) => {
            let value = &feature.value;
            let internals = matches!(value, syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(name), .. })
                if name.value() == "internals");
            Ok(in_loom(if internals { YES } else { NO }))
        }
        (target, _) if target.starts_with("target_") => Ok(EITHER),
        _ => Err(format!("a condition that the tool does not know: `{name}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builds(condition: &str) -> (bool, bool) {
        let item: syn::ItemMod = syn::parse_str(&format!("#[cfg({condition})] mod m;")).expect("an item");
        let Builds { product, loom } = Builds::BOTH.under(&item.attrs).expect("known");
        (product, loom)
    }

    #[test]
    fn conditions_name_their_builds() {
        assert_eq!(builds("any(loom, shuttle)"), (false, true));
        assert_eq!(builds("not(any(loom, shuttle))"), (true, false));
        assert_eq!(builds("all(test, not(any(loom, shuttle)))"), (false, false));
        assert_eq!(builds("any(test, loom, shuttle, feature = \"internals\")"), (true, true));
        assert_eq!(builds("all(feature = \"seize\", not(any(loom, shuttle)))"), (true, false));
        assert_eq!(builds("all(target_arch = \"x86_64\", not(miri))"), (true, true));
        assert_eq!(builds("not(leasehold_counted)"), (true, true));
    }

    #[test]
    fn an_unknown_condition_is_an_error() {
        let item: syn::ItemMod = syn::parse_str("#[cfg(unheard_of)] mod m;").expect("an item");
        assert!(Builds::BOTH.under(&item.attrs).is_err());
    }
}
