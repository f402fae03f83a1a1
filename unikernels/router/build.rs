fn main() {
    image::appliance_with_rules("rules/default.nft".as_ref());
}
