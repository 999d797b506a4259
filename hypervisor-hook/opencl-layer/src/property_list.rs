//! Property lists of queues: how they are read, and how the profiling property is added.

use crate::cl;

/// Maximum length of a property list that is read; standard lists are far shorter.
const MAX_PROPERTIES: usize = 64;

/// The application's own properties of a queue to which the layer added the profiling property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// The answer to CL_QUEUE_PROPERTIES_ARRAY: the application's list with its final 0, or an empty list.
    pub list: Vec<cl::cl_queue_properties>,
}

/// The list with its final 0; empty for NULL, `None` for one that is too long.
///
/// # Safety
/// `properties` is NULL or a list of pairs that ends with 0.
pub unsafe fn read_list(properties: *const cl::cl_queue_properties) -> Option<Vec<cl::cl_queue_properties>> {
    let mut list = Vec::new();
    if properties.is_null() {
        return Some(list);
    }
    while list.len() < MAX_PROPERTIES {
        // SAFETY: the final 0 has not been read yet, so there is another element.
        let name = unsafe { *properties.add(list.len()) };
        list.push(name);
        if name == 0 {
            return Some(list);
        }
        // SAFETY: a name other than 0 is followed by its value.
        list.push(unsafe { *properties.add(list.len()) });
    }
    None
}

/// The list with the profiling property; `None` if the list has it already or is that of a queue on the device.
pub fn with_profiling(list: &[cl::cl_queue_properties]) -> Option<Vec<cl::cl_queue_properties>> {
    let key = cl::cl_queue_properties::from(cl::CL_QUEUE_PROPERTIES);
    let enable = cl::CL_QUEUE_PROFILING_ENABLE as cl::cl_queue_properties;
    let not_ours = enable | cl::CL_QUEUE_ON_DEVICE as cl::cl_queue_properties;
    let mut with = list[..list.len().saturating_sub(1)].to_vec();
    match with.chunks_exact_mut(2).find(|pair| pair[0] == key) {
        Some(pair) if pair[1] & not_ours != 0 => return None,
        Some(pair) => pair[1] |= enable,
        None => with.extend([key, enable]),
    }
    with.push(0);
    Some(with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_get_the_property_once_and_keep_the_rest() {
        let key = cl::cl_queue_properties::from(cl::CL_QUEUE_PROPERTIES);
        let enable = cl::CL_QUEUE_PROFILING_ENABLE as cl::cl_queue_properties;
        assert_eq!(with_profiling(&[]), Some(vec![key, enable, 0]));
        assert_eq!(with_profiling(&[0]), Some(vec![key, enable, 0]));
        assert_eq!(with_profiling(&[7, 8, 0]), Some(vec![7, 8, key, enable, 0]));
        assert_eq!(with_profiling(&[key, 1, 7, 8, 0]), Some(vec![key, 1 | enable, 7, 8, 0]));
        assert_eq!(with_profiling(&[key, enable, 0]), None);
        assert_eq!(with_profiling(&[key, 4, 0]), None, "a queue on the device");
    }

    #[test]
    fn a_list_is_read_to_its_end_and_no_further() {
        let endless = [1; MAX_PROPERTIES + 2];
        // SAFETY: each list ends with 0 or is longer than what is read.
        unsafe {
            assert_eq!(read_list(std::ptr::null()), Some(vec![]));
            assert_eq!(read_list([7, 0, 0].as_ptr()), Some(vec![7, 0, 0]));
            assert_eq!(read_list(endless.as_ptr()), None);
        }
    }
}
