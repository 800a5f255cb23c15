//! The steps that a user asks for, before any file is opened.

use feedline_core::{DType, Result};
use serde_json::{Value as Json, json};

use super::fit_on::FitOn;
use super::times::Time;
use super::{Class, Missing, refuse, vocabulary};
use crate::ElementType;
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
        for column in std::mem::take(&mut self.unknown) {
            let Some(category) = self.categories.iter_mut().find(|category| category.column == column) else {
                let column = one_line(&column);
                let why = format!("unknown names \"{column}\", which is no category: add it to category");
                return Err(refuse(why));
            };
            category.has_unknown = true;
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
        for column in self.shared.iter().flatten() {
            let is_own = |category: &Category| category.column == *column && category.classes.is_none();
            if !self.categories.iter().any(is_own) {
                let column = one_line(column);
                let why = format!("share names \"{column}\", which is no category, or has a stated list");
                return Err(refuse(why + ": add it to category without a list"));
            }
        }
        once("category", self.categories.iter().map(|category| &category.column))?;
        let standardized = self.standardized.iter().flat_map(|name| self.columns_of(name));
        let standardized: Vec<_> = standardized.collect();
        once("standardize", standardized.iter().copied())?;
        once("missing", self.missing.iter().flat_map(|(name, _)| self.columns_of(name)))?;
        for (stack, columns) in &self.stacks {
            once("stack", columns.iter())?;
            if columns.is_empty() {
                return Err(refuse(format!("the stack \"{}\" has no columns: name some", one_line(stack))));
            }
        }
        for Category { column, .. } in &self.categories {
            if standardized.contains(&column) {
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
        let mut columns: Vec<String> = Vec::new();
        let fitted = self.fit_on.as_ref().and_then(FitOn::column);
        let selected = self.select.as_ref()?.iter().flat_map(|name| self.columns_of(name));
        for column in selected.map(String::as_str).chain(fitted) {
            if !columns.iter().any(|own| own == column) {
                columns.push(column.to_owned());
            }
        }
        Some(columns)
    }

    /// The columns whose missing values are marked.
    pub(super) fn masks(&self) -> Vec<String> {
        let read = self.columns();
        let filled = self.missing.iter().flat_map(|(name, _)| self.columns_of(name));
        let mut masks: Vec<String> = Vec::new();
        let times = self.times.iter().map(|(column, _)| column);
        let categories = self.categories.iter().map(|category| &category.column);
        // In these columns, an empty text is a missing value.
        for column in filled.chain(categories).chain(times).chain(&self.cells) {
            let is_read = read.as_ref().is_none_or(|read| read.contains(column));
            if is_read && !masks.contains(column) {
                masks.push(column.clone());
            }
        }
        masks
    }

    /// Whether a step needs a mean.
    pub(super) fn has_means(&self) -> bool {
        !self.standardized.is_empty() || self.missing.iter().any(|(_, missing)| *missing == Missing::Mean)
    }

    pub(super) fn is_standardized(&self, column: &str) -> bool {
        self.standardized.iter().any(|name| self.columns_of(name).iter().any(|own| *own == column))
    }

    pub(super) fn missing_of(&self, column: &str) -> Option<&Missing> {
        let names = |name| self.columns_of(name).iter().any(|own| *own == column);
        self.missing.iter().find(|(name, _)| names(name)).map(|(_, missing)| missing)
    }

    pub(super) fn category_of(&self, column: &str) -> Option<&Category> {
        self.categories.iter().find(|category| category.column == column)
    }

    /// The columns of categories that are read.
    pub(super) fn codes(&self) -> Vec<String> {
        let read = self.columns();
        let names = self.categories.iter().map(|category| category.column.clone());
        names.filter(|name| read.as_ref().is_none_or(|read| read.contains(name))).collect()
    }

    /// The categories whose stated list has texts, with the type text. Their cells may all be digits.
    pub(super) fn texts(&self) -> Vec<(String, ElementType)> {
        let is_text = |category: &&Category| category.classes.as_deref().is_some_and(vocabulary::is_of_texts);
        let codes = self.codes();
        let texts = self.categories.iter().filter(is_text).map(|category| category.column.clone());
        texts.filter(|name| codes.contains(name)).map(|name| (name, ElementType::Text)).collect()
    }

    pub(super) fn time_of(&self, column: &str) -> Option<Time> {
        self.times.iter().find(|(name, _)| name == column).map(|(_, time)| *time)
    }

    pub(super) fn cast_of(&self, name: &str) -> Option<DType> {
        self.casts.iter().find(|(cast, _)| cast == name).map(|(_, dtype)| *dtype)
    }

    pub(super) fn cut_of(&self, name: &str) -> Option<Cut> {
        self.cuts.iter().find(|(cut, _)| cut == name).map(|(_, cut)| *cut)
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
    let mut seen = std::collections::HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(refuse(format!("{step} names \"{}\" twice: keep one", one_line(name)))),
        None => Ok(()),
    }
}
