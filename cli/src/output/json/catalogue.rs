//! The catalogue of options, whole.

use std::collections::BTreeMap;

use router_policy::option::OptionDef;
use router_policy::option::catalogue::Preset;
use serde::Serialize;

/// One option of the catalogue.
#[derive(Debug, Serialize)]
pub(crate) struct CatalogueEntry {
    pub(crate) name: &'static str,
    /// The name in words.
    pub(crate) label: String,
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    /// What a number counts, `time` or `bytes`; null for words and bare numbers.
    pub(crate) unit: Option<&'static str>,
    /// For fine tuning: listed only when asked for everything.
    pub(crate) hidden: bool,
    /// Another name that documents may use; null for none.
    pub(crate) alias: Option<&'static str>,
    pub(crate) default: &'static str,
    /// Presets under which the default is another.
    pub(crate) preset_defaults: BTreeMap<&'static str, &'static str>,
    pub(crate) allowed: String,
    pub(crate) description: &'static str,
}

impl From<&OptionDef> for CatalogueEntry {
    fn from(option: &OptionDef) -> Self {
        let some = |text: &'static str| (!text.is_empty()).then_some(text);
        let default = option.default_text(Preset::None);
        let presets = Preset::NAMES.into_iter().filter_map(Preset::parse);
        let others = presets.map(|preset| (preset.name(), option.default_text(preset)));
        Self {
            name: option.name,
            label: option.label(),
            group: option.group,
            kind: option.kind.name(),
            unit: some(option.unit),
            hidden: option.is_hidden,
            alias: some(option.alias),
            default,
            preset_defaults: others.filter(|(_, text)| *text != default).collect(),
            allowed: option.kind.allowed(),
            description: option.description,
        }
    }
}

/// `route options`: always every option; which are shown to people is for the table alone.
#[derive(Debug, Serialize)]
pub(crate) struct Catalogue {
    pub(crate) options: Vec<CatalogueEntry>,
    #[serde(skip)]
    pub(crate) with_hidden: bool,
    /// One was asked for by name: it is shown with all that there is to say.
    #[serde(skip)]
    pub(crate) is_one: bool,
}
