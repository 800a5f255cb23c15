//! The steps that a user asks for, before any file is opened.

use std::collections::{HashMap, HashSet};

use feedline_core::{DType, ElementType, Result};
use serde_json::{Value as Json, json};

use super::fit_on::FitOn;
use super::times::Time;
use super::{Class, Missing, refuse, vocabulary};
use crate::error::one_line;

/// The steps for the columns of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) select: Option<Vec<String>>,
    pub(super) stacks: Vec<(String, Vec<String>)>,
    pub(super) casts: Vec<(String, DType)>,
    pub(super) categories: Vec<Category>,
    /// Categories that have a number for unknown values.
    pub(super) unknown: Vec<String>,
    pub(super) standardized: Vec<String>,
    pub(super) missing: Vec<(String, Missing)>,
    pub(super) times: Vec<(String, Time)>,
    /// Columns whose categories share a list.
    pub(super) shared: Vec<Vec<String>>,
    /// Columns of lists, and the items that are kept.
    pub(super) cuts: Vec<(String, Cut)>,
    /// Columns without a replacement for missing values. A missing value is an error of the cell, not of the
    /// row.
    pub(super) cells: Vec<String>,
    /// The rows that the pass reads. `None` for all rows.
    pub(super) fit_on: Option<FitOn>,
}

/// A column whose values are numbered.
#[derive(Clone, Debug)]
pub(super) struct Category {
    pub(super) column: String,
    /// The list of values, if the user states one.
    pub(super) classes: Option<Vec<Class>>,
    pub(super) has_unknown: bool,
    /// Whether the list covers all rows, even if the pass covers only some rows.
    pub(super) is_of_all_rows: bool,
}

/// The items of a list that are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    pub(super) max: usize,
    /// Whether the last items are kept.
    pub(super) is_last: bool,
}

impl Category {
    pub(super) fn new(column: &str, classes: Option<Vec<Class>>) -> Self {
        Self { column: column.to_owned(), classes, has_unknown: false, is_of_all_rows: false }
    }
}

impl Steps {
    /// Refuses steps that contradict each other for any table.
    pub(super) fn check(&mut self) -> Result<()> {
        let mut unknown: HashSet<String> = std::mem::take(&mut self.unknown).into_iter().collect();
        for category in &mut self.categories {
            category.has_unknown |= unknown.remove(&category.column);
        }
        if let Some(column) = unknown.iter().min() {
            let column = one_line(column);
            let why = format!("unknown names \"{column}\", which is no category: add it to category");
            return Err(refuse(why));
        }
        once("select", self.select.iter().flatten())?;
        once("stack", self.stacks.iter().map(|(name, _)| name))?;
        once("cast", self.casts.iter().map(|(name, _)| name))?;
        once("days or seconds", self.times.iter().map(|(name, _)| name))?;
        once("max or last", self.cuts.iter().map(|(name, _)| name))?;
        once("share", self.shared.iter().flatten())?;
        if let Some((column, _)) = self.cuts.iter().find(|(_, cut)| cut.max == 0) {
            return Err(refuse(format!("column \"{}\" keeps 0 items: use 1 or more", one_line(column))));
        }
        let own = self.categories.iter().filter(|category| category.classes.is_none());
        let own: HashSet<_> = own.map(|category| &category.column).collect();
        for column in self.shared.iter().flatten() {
            if !own.contains(column) {
                let column = one_line(column);
                let why = format!("share names \"{column}\", which is no category, or has a stated list");
                return Err(refuse(why + ": add it to category without a list"));
            }
        }
        once("category", self.categories.iter().map(|category| &category.column))?;
        let standardized = self.standardized.iter().flat_map(|name| self.columns_of(name));
        let standardized: Vec<_> = standardized.collect();
        once("standardize", standardized.iter().copied())?;
        let standardized: HashSet<_> = standardized.into_iter().collect();
        once("missing", self.missing.iter().flat_map(|(name, _)| self.columns_of(name)))?;
        for (stack, columns) in &self.stacks {
            once("stack", columns.iter())?;
            if columns.is_empty() {
                return Err(refuse(format!("the stack \"{}\" has no columns: name some", one_line(stack))));
            }
        }
        for Category { column, .. } in &self.categories {
            if standardized.contains(column) {
                let why = "is a category, whose numbers have no mean: leave it out of standardize";
                return Err(refuse(format!("column \"{}\" {why}", one_line(column))));
            }
        }
        Ok(())
    }

    /// The columns that `name` stands for: the columns of a stack, or the column `name`.
    pub(super) fn columns_of<'a>(&'a self, name: &'a String) -> Vec<&'a String> {
        match self.stacks.iter().find(|(stack, _)| stack == name) {
            Some((_, columns)) => columns.iter().collect(),
            None => vec![name],
        }
    }

    /// The columns that are read. `None` for all columns.
    pub(super) fn columns(&self) -> Option<Vec<String>> {
        let fitted = self.fit_on.as_ref().and_then(FitOn::column);
        let selected = self.select.as_ref()?.iter().flat_map(|name| self.columns_of(name));
        let (all, mut seen) = (selected.map(String::as_str).chain(fitted), HashSet::new());
        Some(all.filter(|column| seen.insert(*column)).map(str::to_owned).collect())
    }

    /// The columns of `names` that are read, each once.
    fn read<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Vec<String> {
        let read: Option<HashSet<String>> = self.columns().map(|read| read.into_iter().collect());
        let mut seen = HashSet::new();
        let is_read = |name: &&String| read.as_ref().is_none_or(|read| read.contains(*name));
        names.into_iter().filter(|name| is_read(name) && seen.insert(*name)).cloned().collect()
    }

    /// The columns whose missing values are marked.
    pub(super) fn masks(&self) -> Vec<String> {
        let filled = self.missing.iter().flat_map(|(name, _)| self.columns_of(name));
        let times = self.times.iter().map(|(column, _)| column);
        let categories = self.categories.iter().map(|category| &category.column);
        // In these columns, an empty text is a missing value.
        self.read(filled.chain(categories).chain(times).chain(&self.cells))
    }

    /// Whether a step needs a mean.
    pub(super) fn has_means(&self) -> bool {
        !self.standardized.is_empty() || self.missing.iter().any(|(_, missing)| *missing == Missing::Mean)
    }

    /// The columns of categories that are read.
    pub(super) fn codes(&self) -> Vec<String> {
        self.read(self.categories.iter().map(|category| &category.column))
    }

    /// The categories whose stated list has texts, with the type text. Their cells may all be digits.
    pub(super) fn texts(&self) -> Vec<(String, ElementType)> {
        let is_text = |category: &&Category| category.classes.as_deref().is_some_and(vocabulary::is_of_texts);
        let texts = self.categories.iter().filter(is_text).map(|category| &category.column);
        self.read(texts).into_iter().map(|name| (name, ElementType::Text)).collect()
    }

    /// Every name that a step uses, with the step.
    pub(super) fn names(&self) -> Vec<(&'static str, &String)> {
        let casts = self.casts.iter().map(|(name, _)| ("cast", name));
        let categories = self.categories.iter().map(|category| ("category", &category.column));
        let standardized = self.standardized.iter().map(|name| ("standardize", name));
        let missing = self.missing.iter().map(|(name, _)| ("missing", name));
        let times = self.times.iter().map(|(name, _)| ("days or seconds", name));
        let select = self.select.iter().flatten().map(|name| ("select", name));
        let cuts = self.cuts.iter().map(|(name, _)| ("max or last", name));
        let all = casts.chain(categories).chain(standardized).chain(missing).chain(times);
        all.chain(select).chain(cuts).collect()
    }

    /// The steps as JSON. Equal steps have equal JSON.
    pub(super) fn json(&self) -> Json {
        let missing = |(name, missing): &(String, Missing)| json!([name, missing.to_string()]);
        let category = |category: &Category| {
            let list = |classes: &Vec<Class>| classes.iter().map(Class::json).collect::<Vec<_>>();
            let classes = category.classes.as_ref().map(list);
            json!([category.column, classes, if category.has_unknown { "unknown" } else { "" }])
        };
        let cast = |(name, dtype): &(String, DType)| json!([name, dtype.name()]);
        let time = |(name, time): &(String, Time)| {
            json!([name, if *time == Time::Days { "days" } else { "seconds" }])
        };
        let cut =
            |(name, cut): &(String, Cut)| json!([name, cut.max, if cut.is_last { "last" } else { "first" }]);
        let mut json = json!({
            "select": self.select,
            "stack": self.stacks,
            "cast": self.casts.iter().map(cast).collect::<Vec<_>>(),
            "category": self.categories.iter().map(category).collect::<Vec<_>>(),
            "standardize": self.standardized,
            "times": self.times.iter().map(time).collect::<Vec<_>>(),
            "missing": self.missing.iter().map(missing).collect::<Vec<_>>(),
        });
        if !self.shared.is_empty() {
            json["share"] = json!(self.shared);
        }
        if !self.cuts.is_empty() {
            json["max"] = self.cuts.iter().map(cut).collect();
        }
        json
    }
}

/// The steps by the names of columns and stacks. A table may have 20,000 columns: a name is looked up once.
pub(super) struct ByName<'a> {
    pub(super) stacks: HashMap<&'a str, &'a [String]>,
    /// The columns of all stacks.
    pub(super) stacked: HashSet<&'a str>,
    pub(super) standardized: HashSet<&'a str>,
    pub(super) missing: HashMap<&'a str, &'a Missing>,
    pub(super) categories: HashMap<&'a str, &'a Category>,
    pub(super) times: HashMap<&'a str, Time>,
    pub(super) casts: HashMap<&'a str, DType>,
    pub(super) cuts: HashMap<&'a str, Cut>,
}

impl<'a> ByName<'a> {
    /// The steps, after [`Steps::check`].
    pub(super) fn new(steps: &'a Steps) -> Self {
        let columns_of = |name| steps.columns_of(name).into_iter().map(String::as_str);
        let missing =
            |(name, missing): &'a (String, Missing)| columns_of(name).map(move |name| (name, missing));
        Self {
            stacks: steps.stacks.iter().map(|(name, columns)| (name.as_str(), columns.as_slice())).collect(),
            stacked: steps.stacks.iter().flat_map(|(_, columns)| columns).map(String::as_str).collect(),
            standardized: steps.standardized.iter().flat_map(columns_of).collect(),
            missing: steps.missing.iter().flat_map(missing).collect(),
            categories: steps
                .categories
                .iter()
                .map(|category| (category.column.as_str(), category))
                .collect(),
            times: steps.times.iter().map(|(name, time)| (name.as_str(), *time)).collect(),
            casts: steps.casts.iter().map(|(name, dtype)| (name.as_str(), *dtype)).collect(),
            cuts: steps.cuts.iter().map(|(name, cut)| (name.as_str(), *cut)).collect(),
        }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "number {number}"),
            Self::Whole(number) => write!(f, "number {number}"),
            Self::Text(text) => write!(f, "text {text}"),
            Self::Mean => f.write_str("mean"),
            Self::Mask => f.write_str("mask"),
        }
    }
}

/// Refuses a name that occurs twice in a step.
fn once<'a>(step: &str, names: impl IntoIterator<Item = &'a String>) -> Result<()> {
    let mut seen = HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(refuse(format!("{step} names \"{}\" twice: keep one", one_line(name)))),
        None => Ok(()),
    }
}
