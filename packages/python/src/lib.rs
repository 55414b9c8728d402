//! The compiled part of the Python package: text in, text out. `headroom/__init__.py` makes Python of it.

use headroom::foreign;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What a scenario needs, as JSON.
#[pyfunction]
fn estimate(py: Python<'_>, scenario: &str) -> PyResult<String> {
    py.detach(|| foreign::estimate(scenario)).map_err(PyValueError::new_err)
}

/// What to change so that a scenario fits, as JSON.
#[pyfunction]
fn levers(py: Python<'_>, scenario: &str) -> PyResult<String> {
    py.detach(|| foreign::levers(scenario)).map_err(PyValueError::new_err)
}

/// What is understood of a configuration of another project, as JSON.
#[pyfunction]
fn read_configuration(py: Python<'_>, text: &str, over: &str) -> PyResult<String> {
    py.detach(|| foreign::read_configuration(text, over)).map_err(PyValueError::new_err)
}

/// The scenarios of a share link, as JSON.
#[pyfunction]
fn open_link(link: &str) -> String {
    foreign::open_link(link)
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(estimate, module)?)?;
    module.add_function(wrap_pyfunction!(levers, module)?)?;
    module.add_function(wrap_pyfunction!(read_configuration, module)?)?;
    module.add_function(wrap_pyfunction!(open_link, module)?)
}
