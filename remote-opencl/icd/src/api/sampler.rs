//! Samplers.

use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Object, lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, Sampler};
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::c_void;

entry_points! {
    fn clCreateSampler(
        context: cl::cl_context,
        normalized: cl::cl_bool,
        addressing: cl::cl_addressing_mode,
        filter: cl::cl_filter_mode,
    ) -> pointer {
        create(context, Settings { normalized: normalized != 0, addressing, filter }, Vec::new())
    }

    fn clCreateSamplerWithProperties(
        context: cl::cl_context,
        list: *const cl::cl_sampler_properties,
    ) -> pointer {
        let mut settings =
            Settings { normalized: true, addressing: cl::CL_ADDRESS_CLAMP, filter: cl::CL_FILTER_NEAREST };
        let mut as_given: Vec<u64> = Vec::new();
        // SAFETY: the caller's list ends with 0.
        for (key, value) in unsafe { memory::pairs(list) } {
            // CL_INVALID_VALUE if the same property name is specified more than once.
            if as_given.iter().step_by(2).any(|seen| *seen == key) {
                return Err(ClError(cl::CL_INVALID_VALUE));
            }
            let mode = || u32::try_from(value).map_err(|_| ClError(cl::CL_INVALID_VALUE));
            match u32::try_from(key) {
                Ok(cl::CL_SAMPLER_NORMALIZED_COORDS) => settings.normalized = value != 0,
                Ok(cl::CL_SAMPLER_ADDRESSING_MODE) => settings.addressing = mode()?,
                Ok(cl::CL_SAMPLER_FILTER_MODE) => settings.filter = mode()?,
                _ => return Err(ClError(cl::CL_INVALID_VALUE)),
            }
            as_given.extend([key, value]);
        }
        if !list.is_null() {
            as_given.push(0);
        }
        create(context, settings, as_given)
    }

    fn clRetainSampler(sampler: cl::cl_sampler) -> status {
        retain::<Sampler>(sampler)
    }

    fn clReleaseSampler(sampler: cl::cl_sampler) -> status {
        release::<Sampler>(sampler)
    }

    fn clGetSamplerInfo(
        sampler: cl::cl_sampler,
        param: cl::cl_sampler_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let sampler = lookup::<Sampler>(sampler)?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_SAMPLER_REFERENCE_COUNT => answer.value(sampler.references()),
            cl::CL_SAMPLER_CONTEXT => answer.value(sampler.context.as_ptr()),
            cl::CL_SAMPLER_NORMALIZED_COORDS => answer.boolean(sampler.normalized),
            cl::CL_SAMPLER_ADDRESSING_MODE => answer.value(sampler.addressing),
            cl::CL_SAMPLER_FILTER_MODE => answer.value(sampler.filter),
            cl::CL_SAMPLER_PROPERTIES => answer.values(&sampler.properties),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }
}

#[derive(Clone, Copy)]
struct Settings {
    normalized: bool,
    addressing: u32,
    filter: u32,
}

fn create(context: cl::cl_context, settings: Settings, properties: Vec<u64>) -> Result<*mut c_void, ClError> {
    let context = lookup::<Context>(context)?;
    let Settings { normalized, addressing, filter } = settings;
    let known = (cl::CL_ADDRESS_NONE..=cl::CL_ADDRESS_MIRRORED_REPEAT).contains(&addressing)
        && [cl::CL_FILTER_NEAREST, cl::CL_FILTER_LINEAR].contains(&filter);
    if !known {
        return Err(ClError(cl::CL_INVALID_VALUE));
    }
    let client = client::Sampler::new(&context.client, normalized, addressing, filter)?;
    Ok(Object::new(Sampler { client, context, normalized, addressing, filter, properties }).as_ptr())
}
