//! What a message is read as.

use super::*;

fn gib(amount: f64) -> Option<Bytes> {
    Some(Bytes((amount * BYTES_PER_GIB as f64).round() as u64))
}

fn mib(amount: f64) -> Option<Bytes> {
    Some(Bytes((amount * BYTES_PER_MIB as f64).round() as u64))
}

/// What is read: requested, capacity, free, process, others, allocated, unallocated.
fn read(text: &str) -> [Option<Bytes>; 7] {
    let message: Message = text.parse().expect("a message");
    let Message { requested, capacity, free, process, others, allocated, unallocated, .. } = message;
    [requested, capacity, free, process, others, allocated, unallocated]
        .map(|amount| amount.map(|amount| amount.bytes))
}

#[test]
fn every_version_of_the_sentence_is_read() {
    // github.com/murong-xu/CADS/issues/4, torch 2.5 or later
    assert_eq!(
        read(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 \
             GiB of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the \
             allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated. If \
             reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        ),
        [gib(22.78), gib(31.47), gib(12.73), gib(18.73), None, gib(9.08), gib(9.35)]
    );
    // github.com/wxian3/NeuroLens/issues/2, torch 2.1: "capacty"
    assert_eq!(
        read(
            "CUDA out of memory. Tried to allocate 55.57 GiB. GPU 0 has a total capacty of 12.00 GiB of which 9.02 GiB is free. \
             Of the allocated memory 984.52 MiB is allocated by PyTorch, and 463.48 MiB is reserved by PyTorch but \
             unallocated."
        ),
        [gib(55.57), gib(12.0), gib(9.02), None, None, mib(984.52), mib(463.48)]
    );
    // github.com/pytorch/pytorch/issues/59778, torch 1.8
    assert_eq!(
        read(
            "CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; \
             3.03 GiB free; 1.24 GiB reserved in total by PyTorch)"
        ),
        [
            gib(2.26),
            gib(6.0),
            gib(3.03),
            None,
            None,
            mib(781.59),
            Some(Bytes(gib(1.24).unwrap().0 - mib(781.59).unwrap().0))
        ]
    );
    // github.com/pytorch/pytorch/issues/16417, torch 1.0
    assert_eq!(
        read(
            "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already \
             allocated; 9.28 GiB free; 4.68 MiB cached)"
        ),
        [mib(12.5), gib(10.92), gib(9.28), None, None, mib(8.57), mib(4.68)]
    );
}

#[test]
fn other_processes_are_told_from_this_one() {
    let [.., process, others, allocated, _] = read(
        "Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 1.50 MiB is free. Process 41 has 60.00 GiB \
         memory in use. Including non-PyTorch memory, this process has 19.09 GiB memory in use. Of the allocated memory 18.01 \
         GiB is allocated by PyTorch, with 64.00 MiB allocated in private pools (e.g., CUDA Graphs), and 0 bytes is reserved by \
         PyTorch but unallocated.",
    );
    assert_eq!((process, others, allocated), (gib(19.09), gib(60.0), gib(18.01)));
}

#[test]
fn processes_that_the_driver_does_not_see_are_not_known() {
    for unseen in ["0 bytes", "17179869184.00 GiB"] {
        let text = format!(
            "Tried to allocate 36.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 12.81 MiB is free. Process 41 has {unseen} \
             memory in use. Including non-PyTorch memory, this process has {unseen} memory in use. Of the allocated memory 10.50 GiB \
             is allocated by PyTorch, and 23.70 MiB is reserved by PyTorch but unallocated."
        );
        let [_, _, _, process, others, allocated, _] = read(&text);
        assert_eq!((process, others, allocated), (None, None, gib(10.5)), "{unseen}");
        let message: Message = text.parse().expect("a message");
        // what PyTorch had not was somebody's
        let account = crate::oom::account::account(&message);
        let (holder, bytes) = account[2];
        assert_eq!(holder, crate::oom::account::Holder::OutsideAndOthers);
        assert!(bytes > Bytes::gib(68.0), "{bytes}");
    }
}

#[test]
fn in_a_container_this_process_is_one_of_those_with_numbers() {
    let [_, _, _, process, others, _, _] = read(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which \
         99.06 MiB is free. Process 7395 has 14.65 GiB memory in use. Of the allocated memory 14.29 GiB is allocated by PyTorch, \
         and 226.08 MiB is reserved by PyTorch but unallocated.",
    );
    assert_eq!((process, others), (gib(14.65), None));
    // and where no more was copied, the only one
    let [_, _, _, process, others, _, _] = read(
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 14.75 GiB of which 60.00 MiB is free. Process \
         3421 has 14.69 GiB memory in use.",
    );
    assert_eq!((process, others), (gib(14.69), None));
    // what PyTorch reserved may tell that it is another
    let [_, _, _, process, others, _, _] = read(
        "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 60.00 MiB is free. Process \
         3421 has 70.00 GiB memory in use. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by \
         PyTorch but unallocated.",
    );
    assert_eq!((process, others), (None, gib(70.)));
    let [_, _, _, process, others, _, _] = read(
        "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 0 bytes is free. Process 41 has 30.00 GiB memory \
         in use. Process 42 has 30.00 GiB memory in use. Including non-PyTorch memory, this process has 19.09 GiB memory in use. Of \
         the allocated memory 18.01 GiB is allocated by PyTorch",
    );
    assert_eq!((process, others), (gib(19.09), gib(60.)));
}

#[test]
fn figures_of_a_log_that_are_not_the_messages_are_left_alone() {
    let [requested, capacity, free, ..] = read(
        "Downloading model 500 MB / 2 GB\n12 GB free on disk\nTIMESTAMPS: 12\nCUDA out of memory. Tried to allocate 2.30 GiB. GPU 0 \
         has a total capacity of 79.10 GiB of which 60.00 MiB is free. 70.00 GiB allowed; Of the allocated memory\n\
         CUDA out of memory. Tried to allocate 9.00 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated)",
    );
    assert_eq!((requested, capacity, free), (gib(2.3), gib(79.1), mib(60.)));
}

#[test]
fn tables_are_read() {
    let summary: Message = "\
|                  PyTorch CUDA memory summary, device ID 0                 |
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
| Allocated memory      |   7023 MiB |   9876 MiB |    123 GiB |    116 GiB |
|       from large pool |   7000 MiB |   9800 MiB |    120 GiB |    113 GiB |
| GPU reserved memory   |  10240 MiB |  10240 MiB |  10240 MiB |      0 B   |"
        .parse()
        .expect("a table");
    assert_eq!(summary.allocated.map(|amount| amount.bytes), mib(7023.));
    assert_eq!(summary.unallocated.map(|amount| amount.bytes), mib(10240. - 7023.));
    let line = "| 30%   42C    P2   118W / 350W |  22100MiB / 24564MiB |     97%      Default |";
    let smi: Message = line.parse().expect("a line");
    assert_eq!(smi.capacity.map(|amount| amount.bytes), mib(24564.));
    assert_eq!(smi.free.map(|amount| amount.bytes), mib(2464.));
}

#[test]
fn on_a_mac_gb_are_gib() {
    let [requested, capacity, .., allocated, _] = read(
        "MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.00 GB, max allowed: 18.13 GB). Tried to \
         allocate 256.00 MB on private pool.",
    );
    assert_eq!((requested, capacity, allocated), (mib(256.), gib(18.13), gib(17.)));
}

#[test]
fn what_is_none_says_so() {
    for text in [
        "",
        "hello",
        "12",
        "GiB",
        "CUDA error: device-side assert",
        "1e999 GiB is free",
        "1.2 GB / 4.7 GB",
        "|||",
        "9.9.9 GiB is free",
    ] {
        assert_eq!(text.parse::<Message>(), Err(NoMessage), "{text}");
    }
    // absurd amounts end at the largest
    let huge: Message = format!("Tried to allocate {} GiB", "9".repeat(400)).parse().expect("an amount");
    assert_eq!(huge.requested.expect("read").most(), u64::MAX);
}
