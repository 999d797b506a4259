//! Images, by messages without a library: valid calls, and descriptions that the manager must refuse.

use crate::harness::{Client, Manager};
use fpga_protocol::images::kind;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::data::Form;

const RGBA8: v1::ImageFormat = v1::ImageFormat { order: 0x10B5, r#type: 0x10DA };

fn image(id: u64, context: u64, width: u64, height: u64) -> v1::CreateImage {
    v1::CreateImage {
        image: id,
        context,
        flags: 1,
        format: Some(RGBA8),
        shape: Some(v1::ImageShape { r#type: kind::IMAGE2D, width, height, ..v1::ImageShape::default() }),
        initial: None,
    }
}

fn region(origin: [u64; 3], size: [u64; 3]) -> Option<v1::ImageRegion> {
    Some(v1::ImageRegion { origin: origin.to_vec(), size: size.to_vec() })
}

fn inline(bytes: usize) -> Option<v1::Data> {
    Some(v1::Data { form: Some(Form::Inline(vec![7; bytes].into())) })
}

#[tokio::test]
async fn images_that_are_none_are_refused() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let huge = u64::MAX / 8;
    let cases = [
        (v1::CreateImage { format: None, ..image(client.id(), context, 4, 4) }, -39),
        (v1::CreateImage { shape: None, ..image(client.id(), context, 4, 4) }, -65),
        (image(client.id(), context, 0, 4), -65),
        (image(client.id(), context, huge, huge), -40),
        (v1::CreateImage { initial: inline(63), ..image(client.id(), context, 4, 4) }, -30),
        (v1::CreateImage { flags: 1 << 3, ..image(client.id(), context, 4, 4) }, -30),
        (image(client.id(), 999, 4, 4), -34),
    ];
    for (create, status) in cases {
        let shown = format!("{create:?}");
        assert_eq!(client.call(Method::CreateImage(create)).await.status, status, "{shown}");
    }
}

#[tokio::test]
async fn a_new_image_is_zero_and_its_regions_are_checked() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let id = client.id();
    assert_eq!(client.call(Method::CreateImage(image(id, context, 4, 4))).await.status, 0);

    let all = region([0; 3], [4, 4, 1]);
    let read = |region| Operation::ReadImage(v1::ReadImage { image: id, region, into: None });
    let write =
        |region, bytes| Operation::WriteImage(v1::WriteImage { image: id, region, data: inline(bytes) });
    let command = client.command(queue, read(all.clone()));
    let event = command.event;
    client.flush(vec![command]).await;
    let (completion, bytes) = client.completion(event).await;
    assert_eq!((completion.status, bytes), (0, vec![0; 64]));

    let cases = [
        (write(all.clone(), 64), 0),
        (write(all.clone(), 63), -30),
        (write(region([1, 0, 0], [4, 4, 1]), 64), -30),
        (read(region([u64::MAX, 0, 0], [2, 1, 1])), -30),
        (read(region([0; 3], [4, 4, 0])), -30),
        (read(None), -30),
        (read(Some(v1::ImageRegion { origin: vec![0], size: vec![4, 4, 1] })), -30),
        (
            Operation::FillImage(v1::FillImage { image: id, color: vec![1; 15].into(), region: all.clone() }),
            -30,
        ),
        (
            Operation::CopyImageToBuffer(v1::CopyImageToBuffer {
                image: id,
                region: all.clone(),
                buffer: id,
                offset: 0,
            }),
            -38,
        ),
        (Operation::ReadImage(v1::ReadImage { image: 999, region: all, into: None }), -38),
    ];
    for (operation, status) in cases {
        let shown = format!("{operation:?}");
        let command = client.command(queue, operation);
        assert_eq!(client.run(command).await, status, "{shown}");
    }
}
