//! `kai check-config`: a scheduler configuration file, read as the scheduler reads it.

use std::path::Path;
use std::process::ExitCode;

use kai_control::Malformed;
use kai_control::scheduler::{Configured, Settings, action_name};
use kai_engine::policy::{Depth, Strategy};
use serde::Serialize;
use serde_json::Value;

use crate::args::CheckConfigArgs;
use crate::error::{self, CliError};
use crate::files::read_yaml;
use crate::output;
use crate::render::table::{Cell, lines};
use crate::render::{BOLD, heading};

/// What a configuration file means.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    /// In the order in which they run.
    actions: Vec<&'static str>,
    /// As listed, or none for the default list.
    plugins: Option<Vec<String>>,
    settings: Vec<Setting>,
    /// What has no effect; on standard error as well.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Setting {
    name: &'static str,
    value: String,
}

/// Status 2 if the scheduler would refuse the file, so that scripts can tell it from a result that cannot be printed.
pub(crate) fn run(args: &CheckConfigArgs) -> ExitCode {
    let checked = match check(&args.file) {
        Ok(checked) => checked,
        Err(refused) => {
            refused.print();
            return ExitCode::from(2);
        }
    };
    match output::print(&checked, args.output, table) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            error.exit_code()
        }
    }
}

fn check(path: &Path) -> Result<Checked, CliError> {
    let file = read_yaml(path)?;
    let checked = read(&file).map_err(|malformed| CliError::Input {
        problem: malformed.to_string(),
        location: Some(path.display().to_string()),
        help: Some(malformed.hint),
    })?;
    checked.warnings.iter().for_each(|warning| error::warn(warning));
    Ok(checked)
}

fn read(file: &Value) -> Result<Checked, Malformed> {
    let Configured { settings, warnings } = Configured::read(file)?;
    let tiers = file["tiers"].as_array().into_iter().flatten();
    let listed = tiers.flat_map(|tier| tier["plugins"].as_array().into_iter().flatten());
    let plugins: Vec<String> = listed.filter_map(|plugin| Some(plugin["name"].as_str()?.to_owned())).collect();
    Ok(Checked {
        actions: settings.policy.actions.iter().map(|action| action_name(*action)).collect(),
        plugins: Some(plugins).filter(|plugins| !plugins.is_empty()),
        settings: describe(&settings),
        warnings,
    })
}

fn describe(settings: &Settings) -> Vec<Setting> {
    let policy = &settings.policy;
    let strategy = |strategy: Strategy| match strategy {
        Strategy::Pack => "binpack",
        Strategy::Spread => "spread",
    };
    let placement = policy.scores.placement.as_ref().map_or_else(
        || "off".to_owned(),
        |placement| format!("GPU {}, CPU {}", strategy(placement.gpu), strategy(placement.cpu)),
    );
    let Depth { allocate, consolidate, reclaim, preempt } = policy.depth;
    let depth = [("allocate", allocate), ("consolidation", consolidate), ("reclaim", reclaim), ("preempt", preempt)];
    let bounds = depth.iter().filter_map(|(action, jobs)| Some(format!("{action} {}", (*jobs)?)));
    let bounds: Vec<String> = bounds.collect();
    let switch = |on: bool| if on { "yes" } else { "no" }.to_owned();
    let any = |number: Option<u32>| number.map_or_else(|| "any number".to_owned(), |number| number.to_string());
    let usage = match &settings.usage {
        Some(rule) => format!("counts, fetched every {} s", rule.fetch_interval.0 / 1_000_000),
        None => "does not count".to_owned(),
    };
    let setting = |name, value| Setting { name, value };
    vec![
        setting("placement", placement),
        setting("keep nodes whole", switch(policy.keep_nodes_whole)),
        setting("jobs tried per queue", if bounds.is_empty() { "all".to_owned() } else { bounds.join(", ") }),
        setting("pods moved by consolidation", any(policy.consolidation_moves_max)),
        setting("past usage of queues", usage),
    ]
}

fn table(checked: &Checked) -> String {
    let mut out = String::new();
    heading(&mut out, "Actions");
    out.extend([checked.actions.join(", ").as_str(), "\n"]);
    heading(&mut out, "Plugins");
    let plugins = checked.plugins.as_ref().map_or_else(|| "the default list".to_owned(), |plugins| plugins.join(", "));
    out.extend([plugins.as_str(), "\n"]);
    heading(&mut out, "Settings");
    let row = |setting: &Setting| vec![Cell::left(setting.name).style(BOLD), Cell::left(setting.value.clone())];
    out.push_str(&lines(&checked.settings.iter().map(row).collect::<Vec<_>>()));
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_default_is_described() {
        let checked = read(&json!({})).unwrap();
        assert_eq!(checked.actions, ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]);
        assert_eq!((checked.plugins, checked.warnings), (None, Vec::new()));
    }

    #[test]
    fn settings_and_what_has_no_effect_are_shown() {
        let plugins = json!([{"plugins": [{"name": "proportion"}, {"name": "gpupak"}]}]);
        let file = json!({"actions": "allocate", "tiers": plugins, "keepNodesWhole": true,
            "queueDepthPerAction": {"allocate": 100}, "keepNodeWhole": true});
        let checked = read(&file).unwrap();
        let text = table(&checked);
        let plain = anstream::adapter::strip_str(&text).to_string();
        for line in [
            "allocate",
            "proportion, gpupak",
            "keep nodes whole             yes",
            "jobs tried per queue         allocate 100",
        ] {
            assert!(plain.lines().any(|found| found == line), "{line} is not in\n{plain}");
        }
        let expected = [
            "keepNodeWhole is not a setting; did you mean keepNodesWhole?",
            "gpupak is not a plugin and is skipped; did you mean gpupack?",
        ];
        assert_eq!(checked.warnings, expected);
    }

    #[test]
    fn an_error_names_the_field() {
        let refused = read(&json!({"queueDepthPerAction": {"allocate": 0}})).unwrap_err();
        assert!(refused.to_string().starts_with("queueDepthPerAction.allocate: "), "{refused}");
    }
}
